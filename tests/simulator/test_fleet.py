"""The simulated fleet's messages: the same every time, and true to each other."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace
from numpy.typing import NDArray
from tests.simulator.orders import CONFIG, START_NS, preempt, scale

from flyball_contracts.codec import Message, decode_message
from flyball_contracts.config import Batch, FleetConfig, StragglingGpu, load_config
from flyball_contracts.errors import ConfigError
from flyball_contracts.frame import Frame
from flyball_contracts.metrics import GPU, HOST, SERVING, WORKLOAD
from flyball_contracts.records import Inventory, NodeEvent, Record, Signal, Snapshot, WorkloadSpec
from flyball_simulator import Fleet, scaled
from flyball_streams.engine.workload.capacity.capacities import by_architecture

ROOT = Path(__file__).resolve().parents[2]
USE = GPU.column("hw.gpu.utilization{task=general}")
POWER = GPU.column("hw.power")
CLOCK = GPU.column("nvidia.gpu.clock.frequency{clock=sm}")
ENERGY = GPU.column("hw.energy")
AVERAGE = GPU.column("nvidia.gpu.power.average")
SM = GPU.column("nvidia.gpu.sm.activity")
CORRECTED = GPU.column("hw.errors{type=corrected}")
UNCORRECTED = GPU.column("hw.errors{type=uncorrected}")
RECOVERY = GPU.column("nvidia.gpu.recovery_action")
HOT = GPU.column("nvidia.gpu.clock.event.active{reason=thermal}")


def decoded(messages: list[Message]) -> list[Record | Frame | Snapshot]:
    return [decode_message(m.topic, m.value, list(m.headers)) for m in messages]


def frames(messages: list[Message], schema: int) -> dict[str, Frame]:
    return {r.node: r for r in decoded(messages) if isinstance(r, Frame) and r.schema == schema}


def gpus(messages: list[Message]) -> NDArray[np.float32]:
    return np.concatenate([f.values for f in frames(messages, GPU.schema).values()])


def rows_of(fleet: Fleet, workload: str) -> NDArray[np.bool_]:
    held = fleet.placement.owner == [s.workload for s in fleet.workloads].index(workload)
    return np.asarray(held)


def run(fleet: Fleet, ticks: int) -> list[list[Message]]:
    return [fleet.tick(i) for i in range(ticks)]


@pytest.mark.parametrize("tick_s", [1.0, 10.0, 60.0])
def test_same_seed_same_bytes_and_another_seed_other_bytes(tick_s: float) -> None:
    config = replace(CONFIG, tick_s=tick_s)

    def bytes_of(seed: int) -> list[Message]:
        fleet = Fleet(replace(config, seed=seed), START_NS)
        messages = [*fleet.messages_at_start(), *(m for i in range(5) for m in fleet.tick(i))]
        fleet.apply(scale("chat-api", 20, id="a"))
        return messages + fleet.tick(5)

    assert bytes_of(1) == bytes_of(1)
    assert all(a != b for a, b in zip(bytes_of(1), bytes_of(2), strict=True) if a.topic.startswith("flyball.telemetry"))


def test_ticks_come_in_order() -> None:
    fleet = Fleet(CONFIG, START_NS)
    with pytest.raises(ValueError, match="next is 0"):
        fleet.tick(1)


def test_what_is_said_at_the_start() -> None:
    fleet = Fleet(CONFIG, START_NS)
    sent = decoded(fleet.messages_at_start())
    assert tuple(r for r in sent if isinstance(r, WorkloadSpec)) == fleet.workloads
    assert tuple(r for r in sent if isinstance(r, Inventory)) == fleet.nodes
    signals = [r for r in sent if isinstance(r, Signal)]
    assert {(s.zone, s.kind) for s in signals} == {
        (z.name, kind) for z in CONFIG.zones for kind in ("carbon_intensity", "electricity_price")
    }
    for signal in signals:
        p10, p50, p90 = (np.array(v) for v in (signal.p10, signal.p50, signal.p90))
        assert (p10 <= p50).all()
        assert (p50 <= p90).all()
        assert signal.end_ns - START_NS >= 24 * 3600 * 10**9
    specs = {s.workload: s for s in fleet.workloads}
    chat = specs["chat-api"]
    assert chat.objective is not None
    assert chat.capacity_per_replica > 0
    assert 0.5 < by_architecture(chat) * CONFIG.services[0].tokens_per_request / chat.capacity_per_replica < 2.0
    fold = specs["protein-fold"]
    assert fold.deadline_ns is not None
    assert fold.duration_s is not None
    assert fold.interruptible
    assert specs["llm-pretrain"].gang_size == 8


def test_the_deferrable_job_starts_in_a_dirty_hour() -> None:
    fleet = Fleet(CONFIG, START_NS)
    (carbon,) = [
        r
        for r in decoded(fleet.messages_at_start())
        if isinstance(r, Signal) and r.kind == "carbon_intensity" and r.zone == "DE"
    ]
    need = round(10_800 / carbon.step_s)
    later = np.sort(np.array(carbon.p50))[:need].mean()
    assert later < 0.6 * np.mean(carbon.p50[:need])


def test_frames_match_the_inventories_they_name() -> None:
    fleet = Fleet(CONFIG, START_NS)
    inventories = {n.node: n for n in fleet.nodes}
    seen: dict[str, int] = {}
    serves: Counter[int] = Counter()
    for index in range(40):
        if index == 20:
            fleet.apply(preempt("synth-data", 4))
        for record in decoded(fleet.tick(index)):
            if isinstance(record, Inventory):
                assert record.epoch == inventories[record.node].epoch + 1
                inventories[record.node] = record
            elif isinstance(record, Frame):
                inventory = inventories[record.node]
                replicas = len(inventory.allocations)
                rows = {GPU.schema: len(inventory.devices), HOST.schema: 1}
                assert record.rows == rows.get(record.schema, replicas)
                assert record.inventory_epoch == inventory.epoch
                assert record.boot_id == inventory.boot_id
                assert record.time_ns == START_NS + index * fleet.period_ns
                assert record.seq == seen.get(record.node, -1) + 1
                seen[record.node] = record.seq
                serves[record.schema] += 1
    nodes = 40 * len(inventories)
    assert all(serves[one.schema] == nodes for one in (GPU, HOST, WORKLOAD))
    assert 0 < serves[SERVING.schema] < nodes
    assert max(n.epoch for n in inventories.values()) == 2
    assert sum(a.workload == "synth-data" for n in inventories.values() for a in n.allocations) == 4


def test_only_h100s_measure_activity() -> None:
    fleet = Fleet(CONFIG, START_NS)
    models = np.array([d.model for n in fleet.nodes for d in n.devices])
    known = np.isfinite(gpus(fleet.tick(0))[:, SM])
    assert (known == (models == "NVIDIA H100 80GB HBM3")).all()
    assert 0 < known.sum() < len(known)


@pytest.mark.parametrize("tick_s", [1.0, 60.0])
def test_physics_hold(tick_s: float) -> None:
    fleet = Fleet(replace(CONFIG, tick_s=tick_s), START_NS)
    ticks = [gpus(messages) for messages in run(fleet, 30)]
    for v in ticks:
        assert ((v[:, USE] >= 0) & (v[:, USE] <= 1)).all()
        assert (v[:, POWER] <= fleet.site.power_limit_w * 1.0001).all()
        assert (v[:, POWER] > 0.9 * fleet.site.idle_power_w).all()
        np.testing.assert_allclose(v[:, ENERGY], v[:, AVERAGE] * tick_s, rtol=1e-5)
    free = fleet.placement.owner < 0
    assert ticks[-1][free, USE].max() < 0.01
    assert ticks[-1][rows_of(fleet, "protein-fold"), USE].mean() > 0.8


def test_the_gang_moves_together_and_saves() -> None:
    config = replace(CONFIG, failing=(), straggling=())
    fleet = Fleet(config, START_NS)
    gang = rows_of(fleet, "vision-train")
    use = np.array([gpus(messages)[gang, USE] for messages in run(fleet, 180)])
    assert use.std(axis=1).max() < 0.05
    saving = (use.mean(axis=1) < 0.2).sum()
    assert saving == 5  # one checkpoint of 5 s in 180 s
    assert np.median(use) > 0.9


def test_the_failing_gpu_shows() -> None:
    fleet = Fleet(CONFIG, START_NS)
    ticks = run(fleet, 40)
    events = [r for messages in ticks for r in decoded(messages) if isinstance(r, NodeEvent) and r.kind == "xid"]
    assert [(e.code, e.remedy, (e.time_ns - START_NS) // 10**9) for e in events] == [
        (92, "notify", 20),
        (48, "drain", 28),
    ]
    devices = [d.id for n in fleet.nodes for d in n.devices]
    row = devices.index(events[1].device)
    gang = rows_of(fleet, "vision-train")
    assert gang[row]
    values = np.array([gpus(messages) for messages in ticks])
    assert (values[:20, row, CORRECTED] == 0).all()
    assert values[24:28, row, CORRECTED].sum() > values[20:24, row, CORRECTED].sum() > 0
    assert values[:, row, UNCORRECTED].sum() == 2
    assert values[27, row, USE] > 0.9
    assert (values[28:, row, USE] == 0).all()
    assert (values[28:, row, RECOVERY] > 0).all()
    gang[row] = False
    others = values[:, gang]
    assert (others[30:, :, USE] > 0.9).all()  # they spin, waiting for the dead one
    assert others[30:, :, POWER].mean() < 0.5 * others[:20, :, POWER].mean()
    assert values[:, :, RECOVERY].sum() == values[:, row, RECOVERY].sum()


def test_the_straggler_shows() -> None:
    fleet = Fleet(CONFIG, START_NS)
    gang = rows_of(fleet, "llm-pretrain")
    values = np.array([gpus(messages) for messages in run(fleet, 45)])
    late = values[40, gang]
    slow = late[:, CLOCK].argmin()
    assert late[slow, CLOCK] < 0.6 * np.median(late[:, CLOCK])
    assert late[slow, USE] > np.median(late[:, USE]) + 0.1
    assert late[slow, POWER] < 0.95 * np.median(late[:, POWER])
    assert late[slow, HOT] == 1
    assert late[:, HOT].sum() == 1
    assert values[14, :, HOT].sum() == 0


def test_a_straggler_recovers() -> None:
    slow = (replace(CONFIG.straggling[0], lasts_s=20.0),)
    fleet = Fleet(replace(CONFIG, straggling=slow), START_NS)
    hot = [float(gpus(messages)[:, HOT].sum()) for messages in run(fleet, 45)]
    assert hot == [0.0] * 16 + [1.0] * 20 + [0.0] * 9


def test_a_gpu_off_the_bus_reads_nothing() -> None:
    failing = (replace(CONFIG.failing[0], xid=79),)
    fleet = Fleet(replace(CONFIG, failing=failing), START_NS)
    values = [gpus(messages) for messages in run(fleet, 30)]
    assert np.isfinite(values[27][:, USE]).all()
    assert np.isnan(values[29]).all(axis=1).sum() == 1


def test_signals_are_published_again() -> None:
    fleet = Fleet(replace(CONFIG, tick_s=60.0), START_NS)
    published = [
        (i, r.published_ns)
        for i in range(121)
        for r in decoded(fleet.tick(i))
        if isinstance(r, Signal) and r.kind == "carbon_intensity" and r.zone == "DE"
    ]
    assert published == [(i, START_NS + i * 60 * 10**9) for i in (60, 120)]


def test_a_finished_job_leaves() -> None:
    short = Batch(name="job", pools=("gpu-a",), replicas=4, nominal_replicas=4, duration_s=10.0)
    fleet = Fleet(replace(CONFIG, batches=(short,)), START_NS)
    sent = [r for messages in run(fleet, 15) for r in decoded(messages) if isinstance(r, WorkloadSpec)]
    assert [(s.workload, s.removed) for s in sent] == [("job", True)]
    assert all(a.workload != "job" for n in fleet.nodes for a in n.allocations)


def test_the_default_fleet_is_the_example() -> None:
    assert load_config(ROOT / "infra" / "examples" / "fleet.yaml", FleetConfig) == CONFIG


def test_scaled_fleets_are_fleets() -> None:
    fleet = Fleet(scaled(CONFIG, 3), START_NS)
    assert len(fleet.nodes) == 72
    assert len({n.node for n in fleet.nodes}) == 72
    assert len(gpus(fleet.tick(0))) == 576


def job(pool: str, replicas: int) -> Batch:
    return Batch(name="x", pools=(pool,), replicas=replicas, nominal_replicas=99, duration_s=1.0)


IMPOSSIBLE: list[tuple[FleetConfig, str]] = [
    (replace(CONFIG, zones=()), "pools.0..zone: 'US-CAL-CISO' is not one of"),
    (replace(CONFIG, pools=()), "pools: there are none"),
    (replace(CONFIG, pools=CONFIG.pools + CONFIG.pools[:1]), "used twice"),
    (replace(CONFIG, batches=(job("no", 0),)), "pools: name some"),
    (replace(CONFIG, batches=(job("gpu-a", 99),)), "only 34 of 99 replicas fit"),
    (replace(CONFIG, batches=CONFIG.batches[:1] * 2), "used twice"),
    (replace(CONFIG, straggling=(StragglingGpu(workload="llm", replica=0, from_s=1.0),)), "'llm' is not one of"),
    (replace(CONFIG, straggling=(StragglingGpu(workload="rank-train", replica=8, from_s=1.0),)), "replicas 0 to 3"),
]


@pytest.mark.parametrize(("config", "message"), IMPOSSIBLE)
def test_a_fleet_that_cannot_be_is_refused(config: FleetConfig, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Fleet(config, START_NS)
