"""Sick GPUs are found, healthy ones are left alone, and the memory of both does not grow."""

from typing import Any

import msgspec
import numpy as np
import pytest
from tests.streams.engine.scene import (
    CELL,
    FIRST,
    ONE,
    START_NS,
    Agent,
    Cell,
    Out,
    Values,
    cell_tick,
    incoming,
    incoming_records,
    inventory,
    spec,
)

from flyball_contracts.config import Batch, FleetConfig, NodePool, Service, Training
from flyball_contracts.config.fleet import FailingGpu, Notebooks, StragglingGpu
from flyball_contracts.ids import NS_PER_S
from flyball_contracts.metrics import GPU
from flyball_contracts.records import (
    Allocation,
    Anomaly,
    Check,
    Migrate,
    NodeCondition,
    NodeEvent,
    Readmission,
    Tick,
)
from flyball_contracts.topics import EVENTS, TELEMETRY, WORKLOADS
from flyball_contracts.xids import xid_of
from flyball_simulator import Fleet
from flyball_streams.engine import Engine
from flyball_streams.engine.cell.placement import Placement
from flyball_streams.engine.node.detectors.departures import Departures
from flyball_streams.engine.node.detectors.health import REPEAT_TICKS, Health
from flyball_streams.engine.node.table import SubjectTable
from flyball_streams.engine.packing import pack, unpack
from flyball_streams.engine.parameters import Parameters

THREE = ONE | {TELEMETRY.name: 3, EVENTS.name: 3}
"""So many that the nodes of the gang are measured by two node lanes."""
CONFIG = Parameters(forecast=msgspec.structs.replace(Parameters().forecast, horizon_ticks=4, lead_ticks=2))
POOLS = (NodePool(name="pool", sku="h100", nodes=6, zone="DE"),)
TRAINING = Training(name="train", pools=("pool",), replicas=4, gpus_per_replica=4)
BATCH = Batch(name="sort", pools=("pool",), replicas=4, nominal_replicas=4, duration_s=1e6)


def fleet(seed: int, **changes: Any) -> FleetConfig:
    """A gang of 16 GPUs, some batch work, and no faults."""
    given: dict[str, Any] = {
        "seed": seed, "pools": POOLS, "trainings": (TRAINING,), "services": (), "notebooks": (), "batches": (BATCH,),
        "failing": (), "straggling": (),
    }  # fmt: skip
    return FleetConfig(**(given | changes))


def watch(config: FleetConfig, ticks: int, partitions: dict[str, int] = THREE) -> Out:
    site, engine = Fleet(config, START_NS), Engine(CONFIG, partitions)
    engine.feed([incoming(m, partitions) for m in site.messages_at_start()])
    return Out([m for i in range(ticks) for m in engine.feed([incoming(m, partitions) for m in site.tick(i)])])


def test_nobody_is_moved_off_a_healthy_gpu() -> None:
    """Other seeds have sick GPUs among healthy ones, see below."""
    out = watch(fleet(3), 150)
    assert out.of(Migrate) == []
    assert [a for a in out.of(Anomaly) if a.detector in ("straggling", "failing")] == []


@pytest.mark.parametrize("seed", [1, 2])
def test_the_failing_and_the_straggling_gpu_are_found_and_nothing_else(seed: int) -> None:
    sick = fleet(
        seed,
        failing=(FailingGpu(workload="train", replica=1, from_s=10.0),),
        straggling=(StragglingGpu(workload="train", replica=3, from_s=12.0),),
    )
    site = Fleet(sick, START_NS)
    held = {a.replica: (i.node, i.devices[a.devices[0]].id) for i in site.nodes for a in i.allocations}
    moves = watch(sick, 100).of(Migrate)  # the second one waits for its minute
    assert {(m.replica, m.from_node, m.from_device) for m in moves} == {
        (name, *held[name]) for name in ("train-1", "train-3")
    }
    assert all(m.to_node and m.to_node != m.from_node for m in moves)
    reasons = {m.replica: m.reason for m in moves}
    assert "failing" in reasons["train-1"]
    assert "straggling" in reasons["train-3"]


def sick(**columns: float) -> Values:
    """One node's GPUs of which the first shows these readings."""
    shown: dict[str, Any] = {"nvidia.gpu.recovery_action": np.array([0, 0], np.float32)}
    for key, value in columns.items():
        shown[{"errors": "hw.errors{type=uncorrected}", "action": "nvidia.gpu.recovery_action"}[key]] = np.array(
            [value, 0], np.float32
        )
    return Values(shown)


def lone(allocated: bool = True) -> Cell:
    held = [Allocation(workload="a", replica="a-0", devices=(0,))] if allocated else []
    return Cell(inventory("node-1", 2, held), records=[spec("a")])


def failing(out: Out) -> list[int]:
    return [a.time_ns // 10**9 - FIRST - 1 for a in out.of(Anomaly) if a.detector == "failing"]


def test_a_broken_device_is_published_again_now_and_then_until_the_node_boots() -> None:
    cell = lone()
    cell.run(0, 5, sick())
    assert failing(cell.run(5, 1, sick(errors=2))) == [5]
    assert failing(cell.run(6, 40, sick())) == [5 + REPEAT_TICKS]
    booted = inventory("node-1", 2, cell.agents[0].inventory.allocations, boot_id="boot-2", epoch=9)
    cell.feed(incoming_records(booted))
    cell.agents = [Agent(booted, epoch=2)]
    assert failing(cell.run(46, 40, sick())) == []


def test_a_device_that_the_driver_has_recovered_is_well_again() -> None:
    cell = lone()
    cell.run(0, 5, sick())
    assert failing(cell.run(5, 2, sick(action=2))) == [5]
    assert failing(cell.run(7, 60, sick())) == []


def test_a_faulty_device_without_work_is_published_to_the_cell_too_so_that_nothing_is_put_there() -> None:
    cell = lone(allocated=False)
    cell.run(0, 5, sick())
    (proposal,) = cell.run(5, 3, sick(errors=1)).proposals()
    assert (proposal.action, proposal.device, proposal.workload) == ("migrate", "node-1/0", "")


def test_a_device_that_was_taken_out_is_forgotten() -> None:
    cell = lone()
    cell.run(0, 5, sick(errors=1))
    rest = inventory("node-1", 2, epoch=2, time_ns=START_NS + 1)
    rest = msgspec.structs.replace(rest, devices=rest.devices[1:])
    cell.feed(incoming_records(rest))
    cell.agents[0].inventory = rest
    assert failing(cell.run(5, 60, Values({"hw.power": 100.0}))) == []


def test_what_is_remembered_of_nodes_that_come_and_go_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = 60  # a node is gone sooner than in production, whatever else is forgotten by then
    monkeypatch.setattr("flyball_streams.engine.node.cell.GONE_TICKS", gone)
    monkeypatch.setattr("flyball_streams.engine.node.cell.GONE_S", float(gone))
    cell = Cell(inventory("stays", 1))
    stays = cell.agents[0]
    lasts = gone + 2 * REPEAT_TICKS
    for n in range(2):
        passing = Agent(inventory(f"spot-{n}", 40))
        cell.feed(incoming_records(passing.inventory))
        first = n * lasts
        for i in range(first, first + 5):
            cell.feed([*stays.frames(i), *passing.frames(i, sick_many(40))])
        for i in range(first + 5, first + lasts):
            cell.feed(stays.frames(i, schemas=[1]))
    held = cell.engine.nodes[0].cells["cell-1"]
    assert held.gpus.capacity == 64
    assert len(held.gpus.names) <= 64
    assert len(held.health.broken) == 0
    assert set(held.inventories) == {"stays"}
    assert len(held.health.reported) == 0


SMALL = FleetConfig(
    tick_s=15.0,
    pools=(NodePool(name="a", sku="h100", nodes=4, zone="DE"), NodePool(name="b", sku="a100", nodes=2, zone="DE")),
    trainings=(
        Training(
            name="train", pools=("a",), replicas=2, gpus_per_replica=4, checkpoint_every_s=300.0, checkpoint_s=40.0
        ),
    ),
    services=(Service(name="chat", pools=("a",), replicas=6, max_replicas=12, random_bursts_per_hour=4.0),),
    notebooks=(Notebooks(name="books", pools=("b",), replicas=5),),
    batches=(Batch(name="sort", pools=("b",), replicas=4, nominal_replicas=4, duration_s=1500.0),),
    failing=(),
    straggling=(),
)


def test_a_fleet_that_is_well_raises_no_alarm() -> None:
    """Checkpoints, bursts, notebooks and a job that ends, for half an hour."""
    assert watch(msgspec.structs.replace(SMALL, seed=1), 120, ONE).of(Anomaly) == []


def test_a_gpu_that_gets_hot_alone_is_named_and_its_gang_is_not() -> None:
    held = tuple(Allocation(workload="train", replica=f"{i}", devices=(i,)) for i in range(8))
    cell = Cell(inventory("node-1", 8, held))
    random = np.random.default_rng(3)

    def shown(work: float, extra: float = 0.0) -> Values:
        power = 100.0 + 500.0 * work + random.normal(0, 4, 8)
        heat = 40.0 + 25.0 * work + random.normal(0, 0.5, 8) + extra * (np.arange(8) == 5)
        return Values({"hw.power": power.astype(np.float32), "hw.temperature{sensor=gpu}": heat.astype(np.float32)})

    for i in range(400):
        out = cell.run(i, 1, shown(0.1 if i % 120 > 105 else 1.0))  # the whole gang writes its checkpoint
        assert out.of(Anomaly) == []
    found = [a for i in range(400, 440) for a in cell.run(i, 1, shown(1.0, extra=20.0)).of(Anomaly)]
    assert [(a.subject, a.detector) for a in found] == [("node-1/5", "departure")]
    assert found[0].evidence[0].name == "hw.temperature{sensor=gpu}"
    assert found[0].evidence[0].expected == pytest.approx(65.0, abs=3.0)


def test_a_gpu_that_gets_other_work_begins_its_course_anew() -> None:
    held = tuple(Allocation(workload="train", replica=f"{i}", devices=(i,)) for i in range(8))
    cell = Cell(inventory("node-1", 8, held))
    agent = cell.agents[0]
    load = np.full(8, 600.0, np.float32)
    for i in range(400):
        cell.run(i, 1, Values({"hw.power": load}))
    agent.inventory = inventory(
        "node-1", 8, (*held[:7], Allocation(workload="other", replica="0", devices=(7,))), epoch=2
    )
    cell.feed(incoming_records(agent.inventory))
    load[7] = 90.0
    assert [a for i in range(400, 460) for a in cell.run(i, 1, Values({"hw.power": load})).of(Anomaly)] == []


def sick_many(rows: int) -> Values:
    return Values({"hw.errors{type=uncorrected}": np.ones(rows, np.float32)})


def test_a_subject_that_comes_back_has_its_history_and_a_new_one_in_its_slot_has_none() -> None:
    table = SubjectTable(GPU)
    departures = Departures(table, {"hw.power": 50.0}, 1e-8)
    table.models = (departures,)
    names = tuple(f"gpu-{i}" for i in range(64))
    rows = table.rows(names, "node-1")
    table.put([(rows, np.full((64, len(GPU)), 100.0, np.float32).tobytes())])
    for index in range(1, 6):
        table.end_tick(Tick(index=index, period_ns=NS_PER_S))
    assert table.means is not None
    assert list(departures.step(cell_tick(Tick(index=5, period_ns=NS_PER_S), gpus=table))) == []
    assert table.retire(names[:1], "node-2") == []  # not that node's to give away
    assert table.retire(names[:2], "node-1") == ["gpu-0", "gpu-1"]
    assert table.rows(("gpu-1",), "node-1").tolist() == [1]
    assert table.rows(("new",), "node-2").tolist() == [0]
    assert table.capacity == 64
    assert np.asarray(departures.model.seen_s)[0, :2].tolist() == [0.0, 5.0]
    assert "gpu-0" not in table.slots


def test_an_error_that_was_once_seen_puts_its_node_out_once_and_one_after_a_readmission_again() -> None:
    """Its repeats are no news: the node is checked once it was quiet, and what was cleared stays cleared."""
    cell = Cell(inventory("node-1", 2), *(inventory(f"other-{i}", 2) for i in range(3)), records=[spec("a")])

    def run(first: int, count: int, errors: float = 0.0) -> tuple[list[str], int]:
        """Conditions of the node, and how many checks of it begin."""
        conditions, checks = list[str](), 0
        for index in range(first, first + count):
            shown = sick(errors=errors) if index == first else sick()
            frames = [f for n, agent in enumerate(cell.agents) for f in agent.frames(index, sick() if n else shown)]
            out = cell.feed(frames)
            conditions += [c.condition for c in out.of(NodeCondition)]
            checks += len(out.of(Check))
        return conditions, checks

    assert run(0, 5) == ([], 0)
    assert run(5, 310, errors=1.0) == (["cordoned", "drained"], 1)
    at_ns = START_NS + 315 * NS_PER_S
    cell.feed(incoming_records(Readmission(cell=CELL, time_ns=at_ns, by="ann", node="node-1", evidence="it passed")))
    assert run(315, 3 * REPEAT_TICKS) == (["checked", "back"], 0)
    assert run(315 + 3 * REPEAT_TICKS, REPEAT_TICKS + 5, errors=1.0) == (["cordoned", "drained"], 0)


def test_events_outlive_nothing_that_they_concern() -> None:
    cell = lone()
    cell.run(0, 5, sick())
    published = NodeEvent(
        id="e", node="node-1", time_ns=START_NS, kind="xid", device="node-1/1", code=79, remedy="reset_gpu"
    )
    cell.feed(incoming_records(published))
    (anomaly,) = [a for a in cell.run(5, 3, sick()).of(Anomaly) if a.detector == "failing"]
    assert anomaly.evidence[0].record == "e"


def test_a_notice_to_the_node_moves_all_its_work_and_a_new_boot_ends_it() -> None:
    held = [Allocation(workload="a", replica=f"a-{i}", devices=(i,)) for i in range(2)]
    cell = Cell(inventory("node-1", 2, held), inventory("node-2", 4), records=[spec("a")])
    cell.run(0, 5)
    published = NodeEvent(id="spot", node="node-1", time_ns=START_NS, kind="spot_notice", remedy="drain")
    cell.feed(incoming_records(published))
    proposals = [p for p in cell.run(5, 3).proposals() if p.action == "migrate"]
    assert {(p.replica, p.device) for p in proposals} == {("a-0", "node-1/0"), ("a-1", "node-1/1")}
    assert all("spot_notice asks to drain" in p.reason for p in proposals)
    booted = inventory("node-1", 2, held, boot_id="boot-2", epoch=9)
    cell.feed(incoming_records(booted))
    cell.agents[0] = Agent(booted, epoch=2)
    assert failing(cell.run(8, 2 * REPEAT_TICKS)) == []


def test_what_strikes_a_gpu_strikes_the_instances_it_is_divided_into() -> None:
    whole = inventory("node-1", 3, [Allocation(workload="a", replica="a-0", devices=(1,))])
    parent, *rest = whole.devices
    instances = [msgspec.structs.replace(d, parent=parent.id, mig_profile="3g.40gb") for d in rest]
    divided = msgspec.structs.replace(whole, devices=(msgspec.structs.replace(parent, mig_enabled=True), *instances))
    cell = Cell(divided, inventory("node-2", 2), records=[spec("a")])
    cell.run(0, 5)
    published = NodeEvent(
        id="e", node="node-1", time_ns=START_NS, kind="xid", device=parent.id, code=79, remedy="reboot"
    )
    cell.feed(incoming_records(published))
    proposals = [p for p in cell.run(5, 3).proposals() if p.action == "migrate" and p.workload]
    assert [(p.replica, p.device) for p in proposals] == [("a-0", instances[0].id)]


def test_nothing_is_placed_on_a_gpu_that_is_divided() -> None:
    node = inventory("node-1", 1)
    node = msgspec.structs.replace(node, devices=(msgspec.structs.replace(node.devices[0], mig_enabled=True),))
    cell = Cell(node, records=[spec("a", min_replicas=1)])
    assert cell.engine.directory.nodes("cell-1") == [node]
    placement = Placement(cell.engine.directory, "cell-1")
    placement.refresh(())
    assert placement.usable(spec("a")) == 0


def ranks(workload: str, count: int = 4) -> list[Allocation]:
    return [Allocation(workload=workload, replica=f"{workload}-{i}", devices=(i,)) for i in range(count)]


def struck_by(cell: Cell, code: int, remedy: Any, devices: range = range(4), second: int = 0) -> None:
    for i in devices:
        cell.feed(
            incoming_records(
                NodeEvent(
                    id=f"{code}-{i}-{second}", node="node-1", time_ns=START_NS + second * 10**9, kind="xid",
                    device=f"node-1/{i}", code=code, remedy=remedy,
                )
            )
        )  # fmt: skip


@pytest.mark.parametrize("code", [8, 13, 31, 43])
def test_an_error_of_the_program_moves_nothing_and_its_owner_is_reported_once(code: int) -> None:
    cell = Cell(inventory("node-1", 4, ranks("a")), inventory("node-2", 8), records=[spec("a")])
    cell.run(0, 5)
    struck_by(cell, code, xid_of(code).remedy)
    out = cell.run(5, 40)
    assert out.proposals() == []
    assert out.of(Migrate) == []
    published = [(a.subject, a.detector) for a in out.of(Anomaly)]
    assert published == ([] if code == 43 else [("a", "application")])
    if published:
        assert [e.value for e in out.of(Anomaly)[0].evidence] == [code, 4.0]


@pytest.mark.parametrize("elsewhere", [False, True])
def test_an_error_that_meets_three_programs_on_one_gpu_and_nowhere_else_is_the_gpus(elsewhere: bool) -> None:
    programs = ["train-a1", "train-b2", "train-c3"]
    cell = Cell(inventory("node-1", 4, ranks(programs[0])), inventory("node-2", 8), records=map(spec, programs))
    found: list[Any] = []
    cell.run(0, 5)
    for count, name in enumerate(programs):
        first = 5 + 10 * count
        after = inventory("node-1", 4, ranks(name), epoch=2 + count)
        cell.feed(incoming_records(after))
        cell.agents[0].inventory = after
        cell.run(first, 5)
        struck_by(cell, 31, "restart_app", range(2 if elsewhere and not count else 1), second=first + 2)
        proposals = cell.run(first + 5, 5).proposals()
        assert len(proposals) == (count == 2 and not elsewhere), "a program that is submitted again fails again"
        found += proposals
    for proposal in found:
        assert (proposal.device, proposal.workload) == ("node-1/0", "train-c3")
        assert "XID 31 came with 3 different workloads in a day" in proposal.reason


MACHINE = [(48, True), (64, True), (74, True), (79, True), (95, True), (119, True), (120, True), (140, True),
           (144, False), (150, False), (157, False), (154, False), (777, False)]  # fmt: skip


@pytest.mark.parametrize(("code", "moves"), MACHINE)
def test_an_error_of_the_machine_moves_its_work_or_keeps_new_work_away(code: int, moves: bool) -> None:
    cell = Cell(inventory("node-1", 4, ranks("a")), inventory("node-2", 8), records=[spec("a")])
    cell.run(0, 5)
    struck_by(cell, code, xid_of(code).remedy, range(1))
    (proposal,) = cell.run(5, 5).proposals()
    assert (proposal.device, proposal.workload) == ("node-1/0", "a" if moves else "")
    assert ("unknown" in proposal.reason) == (code == 777 or code == 154)


def test_what_is_held_against_a_gpu_survives_a_restart() -> None:
    cell = Cell(inventory("node-1", 4, ranks("a")), records=[spec("a")])
    cell.run(0, 5)
    struck_by(cell, 31, "restart_app", range(2))
    struck_by(cell, 777, "no_new_work", range(2, 3))
    cell.run(5, 5)
    held = cell.engine.nodes[0].cells["cell-1"]
    health = held.health
    state = unpack(pack(health.state()))
    other = Health(held.gangs, 64)
    other.load(state, 64)
    assert pack(other.state()) == pack(health.state())
    assert set(other.avoided) == {"node-1/2"}
    assert set(other.attribution.failures) == {"node-1/0", "node-1/1"}


def test_the_simulated_gpu_of_a_program_that_fails_stays_well() -> None:
    out = watch(fleet(1, failing=(FailingGpu(workload="train", replica=1, from_s=10.0, xid=13),)), 60)
    assert out.of(Migrate) == []
    assert {(a.subject, a.detector) for a in out.of(Anomaly)} == {("train", "application")}


@pytest.mark.parametrize(("kind", "published"), [("training", True), ("inference", False)])
def test_a_gang_that_spins_without_work_is_one_hang_and_a_server_with_few_requests_none(
    kind: Any, published: bool
) -> None:
    cell = Cell(inventory("node-1", 4, ranks("a")), records=[msgspec.structs.replace(spec("a"), kind=kind)])

    def shown(power: float, activity: float) -> Values:
        return Values(
            {
                "hw.gpu.utilization{task=general}": 1.0, "nvidia.gpu.sm.activity": activity, "hw.power": power,
                "nvidia.gpu.power.limit{type=enforced}": 700.0,
            }
        )  # fmt: skip

    assert cell.run(0, 200, shown(600.0, 0.8)).of(Anomaly) == []
    found = [a for a in cell.run(200, 60, shown(150.0, 0.01)).of(Anomaly) if a.detector == "hang"]
    assert [(a.subject, a.workload) for a in found] == ([("a", "a")] if published else [])
    for a in found:
        assert a.time_ns // 10**9 - FIRST - 200 <= 30
        assert (a.time_ns - (a.since_ns or 0)) // 10**9 in range(10, 30)
        assert a.evidence[-1].value == 4.0


def test_one_rank_that_is_a_tenth_slower_than_its_gang_is_found_within_a_minute() -> None:
    cell = Cell(
        inventory("node-1", 4, ranks("a")),
        inventory("node-2", 4),
        records=[msgspec.structs.replace(spec("a", max_replicas=4), kind="training")],
    )
    random, key = np.random.default_rng(4), "nvidia.gpu.clock.frequency{clock=sm}"

    def shown(last: float) -> Values:
        clock = 1.98e9 * np.array([1, 1, 1, last]) - 8e6 * np.abs(random.normal(size=4))
        return Values({key: clock.astype(np.float32)})

    for i in range(60):
        assert cell.run(i, 1, shown(1.0)).proposals() == []
    moved = [(i, p) for i in range(60, 120) for p in cell.run(i, 1, shown(0.9)).proposals() if p.action == "migrate"]
    assert moved
    assert moved[0][0] - 60 <= 15
    assert {p.device for _, p in moved} == {"node-1/3"}


def test_a_part_of_a_gang_whose_clocks_nobody_can_read_is_reported_without_them() -> None:
    cell = Cell(inventory("node-1", 4, ranks("a")), records=[msgspec.structs.replace(spec("a"), kind="training")])
    assert [d.clocks for d in cell.run(0, 3, Values({"hw.power": 100.0})).demands()] == [()] * 3


def test_a_straggler_of_a_gang_without_a_specification_is_found_once_its_profile_is_known() -> None:
    sick = fleet(1, tick_s=10.0, straggling=(StragglingGpu(workload="train", replica=3, from_s=900.0),))
    site, engine = Fleet(sick, START_NS), Engine(CONFIG, ONE)
    (device,) = (i.devices[a.devices[0]].id for i in site.nodes for a in i.allocations if a.replica == "train-3")
    first = [m for m in site.messages_at_start() if m.topic != WORKLOADS.name]
    engine.feed([incoming(m) for m in first])
    out = Out([m for i in range(130) for m in engine.feed([incoming(m) for m in site.tick(i)])])
    assert {(a.subject, a.workload) for a in out.of(Anomaly) if a.detector == "straggling"} == {(device, "train")}
