"""Profiles, the memory guard and waste through the lanes, and the decisions that read them."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.streams.engine.scene import (
    CONFIG,
    FIRST,
    PERIOD_NS,
    START_NS,
    Agent,
    Cell,
    Floats,
    Out,
    incoming_records,
    inventory,
    spec,
)

from flyball_contracts.ids import NS_PER_S
from flyball_contracts.metrics import GPU, HOST, WORKLOAD
from flyball_contracts.records import (
    Allocation,
    Anomaly,
    Capacity,
    Device,
    Inventory,
    Profile,
    Proposal,
    Waste,
    WorkloadProfile,
)
from flyball_models.profile.course import FEATURES
from flyball_streams.engine import Incoming, Lane
from flyball_streams.engine.parameters import RightsizingParameters

H100 = "NVIDIA H100 80GB HBM3"
GIB = 2**30
EVERY = 10
"""Seconds of a tick: each is a sample of the signals."""
EMPTY: Mapping[str, float] = {}
CHOSEN = msgspec.structs.replace(CONFIG, profile_every_ticks=6)
SLOW, FAST = 20, msgspec.structs.replace(CONFIG, profile_every_ticks=3)
"""Longer ticks, in s, and profiles as often."""
BANDWIDTH = {
    "hw.gpu.utilization{task=general}": 0.98,
    "nvidia.gpu.sm.activity": 0.33,
    "nvidia.gpu.sm.occupancy": 0.12,
    "nvidia.gpu.tensor.activity": 0.03,
    "nvidia.gpu.dram.bandwidth.utilization": 0.85,
    "nvidia.gpu.fp.activity{precision=64}": 0.0,
    "nvidia.gpu.fp.activity{precision=32}": 0.03,
    "nvidia.gpu.fp.activity{precision=16}": 0.03,
    "nvidia.gpu.int.activity": 0.05,
    "hw.gpu.memory.usage": 6.0 * GIB,
    "hw.gpu.memory.utilization": 6.0 / 80.0,
    "nvidia.gpu.memory.controller.utilization": 0.95,
    "hw.power": 350.0,
    "nvidia.gpu.power.limit{type=enforced}": 700.0,
}

COMPUTE = BANDWIDTH | {
    "nvidia.gpu.dram.bandwidth.utilization": 0.08,
    "nvidia.gpu.tensor.activity": 0.2,
    "nvidia.gpu.memory.controller.utilization": 0.1,
    "nvidia.gpu.fp.activity{precision=32}": 0.1,
    "hw.power": 230.0,
}


def node(name: str, workload: str, gpus: int = 1, free: int = 0, **changes: Any) -> Inventory:
    devices = tuple(Device(id=f"{name}/{i}", model=H100, memory_bytes=80 * GIB, index=i) for i in range(gpus + free))
    held = (Allocation(workload=workload, replica=f"{name}/{workload}", devices=tuple(range(gpus))),)
    return inventory(name, devices=devices, allocations=held, price_usd_per_hour=4.0, **changes)


def frames(
    agent: Agent, index: int, gpu: Mapping[str, float], page: Mapping[str, float | Floats] = EMPTY, every: int = EVERY
) -> list[Incoming]:
    """Frames of a tick of ``every`` seconds."""
    made: list[Incoming] = []
    rows = len(agent.inventory.devices), 1, len(agent.inventory.allocations)
    for layout, count, shown in zip((GPU, HOST, WORKLOAD), rows, (gpu, EMPTY, page), strict=True):
        block = np.full((count, len(layout)), np.nan, np.float32)
        for key, value in shown.items():
            block[:, layout.column(key)] = value
        made.append(agent.frame(index, block, layout.schema, agent.seq, period_ns=every * PERIOD_NS))
        agent.seq += 1
    return made


Shown = Mapping[str, float] | Callable[[int, str], Mapping[str, float]]


def run(cell: Cell, first: int, until: int, shown: Shown, every: int = EVERY) -> Out:
    """Ticks of ``every`` seconds; ``shown`` gives the values of the node's GPUs by second."""
    out = Out([])
    for index in range(first, until, every):
        batch: list[Incoming] = []
        for agent in cell.agents:
            values = shown(index, agent.inventory.node) if callable(shown) else shown
            batch += frames(agent, index, values, every=every)
        out.messages.extend(cell.feed(batch).messages)
    return out


def test_a_device_and_its_workload_get_a_verdict_and_a_restart_changes_nothing() -> None:
    cell = Cell(node("n1", "llm"), records=[spec("llm", kind="inference")], config=CHOSEN)
    run(cell, 0, 200, BANDWIDTH)
    again = Cell(node("n1", "llm"), records=[spec("llm", kind="inference")], config=CHOSEN)
    again.agents[0].seq = cell.agents[0].seq
    again.feed(frames(cell.agents[0], -EVERY, BANDWIDTH))  # makes the node lane
    for lane, kept in zip(lanes(again), lanes(cell), strict=True):
        lane.restore(kept.snapshot())
    cell.agents[0].seq = again.agents[0].seq
    after = run(cell, 200, 420, BANDWIDTH)
    same = run(again, 200, 420, BANDWIDTH)
    assert [m.value for m in same.messages] == [m.value for m in after.messages]
    last = after.of(Profile)[-1]
    assert (last.bound_by, last.phase, last.workload) == ("memory_bandwidth", "steady", "llm")
    assert last.bound_probability is not None
    assert last.bound_probability > 0.6
    whole = after.of(WorkloadProfile)[-1]
    assert next(iter(whole.kinds)) == "inference"
    assert next(iter(whole.bounds)) == "memory_bandwidth"
    assert len(whole.fingerprint) == len(FEATURES)
    assert {o.method for o in whole.opinions} >= {"declared", "name", "online"}
    assert all(0.0 < o.error < 1.0 for o in whole.opinions)
    assert whole.fingerprint_error == pytest.approx(0.0, abs=0.05)


def test_a_free_device_has_no_verdict_and_one_that_changes_hands_begins_anew() -> None:
    cell = Cell(node("n1", "llm", free=1), records=[spec("llm")], config=CHOSEN)
    shown = run(cell, 0, 100, BANDWIDTH).of(Profile)
    free = [p for p in shown if p.subject == "n1/1"]
    assert {(p.kind, p.family, p.bound_by, p.phase) for p in free} == {("", "", "", "")}
    cell.agents[0].inventory = node("n1", "other", free=1, epoch=2)
    cell.engine.directory.apply(cell.agents[0].inventory)
    told_of = [p.seen_s for p in run(cell, 100, 230, BANDWIDTH).of(WorkloadProfile) if p.subject == "other"]
    assert told_of
    assert max(told_of) <= 130


def lanes(of: Cell) -> list[Lane]:
    return [*of.engine.nodes.values(), *of.engine.workloads, *of.engine.cells]


def slices(shown: dict[str, float]) -> set[str | None]:
    settings = RightsizingParameters(every_s=300.0, after_s=120.0)
    cell = Cell(
        node("n1", "job"),
        records=[spec("job", cold_start_s=2.0)],
        config=msgspec.structs.replace(CHOSEN, rightsizing=settings),
    )
    resizes: list[Proposal] = [p for p in run(cell, 4, 904, shown).proposals() if p.action == "resize"]
    return {p.resources.gpu_profile for p in resizes if p.resources is not None}


def test_what_is_bound_by_bandwidth_keeps_its_gpu_where_other_work_gets_a_slice() -> None:
    """Both use a third of the SMs and little memory: only the profile tells them apart."""
    assert slices(BANDWIDTH) == set()
    assert slices(COMPUTE) == {
        "3g.40gb",
        "4g.40gb",
    }


def grown(epoch: int, replicas: int) -> Inventory:
    held = tuple(Allocation(workload="chat-old", replica=f"old-{i}", devices=(i,)) for i in range(replicas))
    whole = node("n1", "chat-old", gpus=2, epoch=epoch, time_ns=START_NS + epoch)
    return msgspec.structs.replace(whole, allocations=held)


@pytest.mark.parametrize("declared_s", [60.0, 45.0])
def test_a_new_workload_starts_with_the_cold_start_of_those_like_it(declared_s: float) -> None:
    """An owner who says something is believed."""
    records = [spec("chat-old"), spec("chat-new", cold_start_s=declared_s)]
    cell = Cell(grown(1, 1), node("n2", "chat-new"), records=records, config=FAST)
    agent, other = cell.agents
    at, epoch, out = 0, 1, Out([])

    def feed(seconds: int, ready: Floats, *others: Agent) -> int:
        page: dict[str, float | Floats] = {"flyball.workload.work.rate": 5.0, "flyball.workload.request.rate": 5.0}
        for index in range(at, at + seconds, SLOW):
            batch = frames(agent, index, BANDWIDTH, page | {"flyball.workload.ready": ready}, SLOW)
            for one in others:
                batch = [*frames(one, index, BANDWIDTH, page | {"flyball.workload.ready": 1.0}, SLOW), *batch]
            out.messages.extend(cell.feed(batch).messages)
        return at + seconds

    for _ in range(4):  # a second replica of the old one comes four times, and takes 200 s each time
        for replicas, seconds, ready in ((1, 20, 0.0), (2, 200, 0.0), (2, 20, 1.0)):
            if len(agent.inventory.allocations) != replicas:
                epoch += 1
                agent.inventory = grown(epoch, replicas)
                cell.engine.feed(incoming_records(agent.inventory))
            at = feed(seconds, np.array([1.0, ready], np.float32)[:replicas])
    at = feed(240, np.ones(2, np.float32), other)
    last = {c.subject: c.cold_start_s for c in out.of(Capacity)}
    assert 100.0 < last["chat-old"] < 210.0
    if declared_s == 60.0:  # few starts speak for others less loudly than for their own
        assert 100.0 < last["chat-new"] <= last["chat-old"]
    else:
        assert last["chat-new"] == declared_s
    profile = next(p for p in reversed(out.of(WorkloadProfile)) if p.subject == "chat-new")
    assert [s.workload for s in profile.similar] == ["chat-old"]


@pytest.mark.parametrize(("kind", "warned"), [("training", True), ("inference", False)])
def test_the_guard_warns_of_a_job_whose_memory_fills_before_it_is_full(kind: str, warned: bool) -> None:
    cell = Cell(node("n1", "job"), records=[spec("job", kind=kind)], config=CHOSEN)

    def leaks(index: int, _: str) -> dict[str, float]:
        share = 0.5 + 0.5 * index / 1800.0
        return BANDWIDTH | {"hw.gpu.memory.utilization": share}

    found = [a for a in run(cell, 0, 1200, leaks).of(Anomaly) if a.detector == "memory_filling"]
    assert bool(found) == warned
    if warned:
        first = found[0]
        lead = {e.name: e.value for e in first.evidence}["memory.lead_time"]
        full_ns = (FIRST + 1800 * 0.97) * NS_PER_S
        assert first.time_ns / NS_PER_S + lead == pytest.approx(full_ns / NS_PER_S, abs=90.0)
        assert len(found) <= 2  # it reminds, and does not shout


def test_waste_is_counted_once_with_its_price_and_what_would_take_it() -> None:
    records = [spec("busy", gpus_per_replica=2.0), spec("still", gpus_per_replica=2.0)]
    nodes = node("n1", "busy", free=1), node("n2", "still")
    cell = Cell(*nodes, records=records, config=FAST)
    compute = BANDWIDTH | {"hw.gpu.memory.utilization": 0.9}
    idle = dict.fromkeys(BANDWIDTH, 0.0) | {"hw.gpu.memory.utilization": 0.4, "hw.power": 60.0}

    def shown(_: int, name: str) -> dict[str, float]:
        return compute if name == "n1" else idle

    out = run(cell, 0, 2500, shown, every=SLOW)
    found = out.of(Waste)
    still = [w for w in found if w.subject == "still" and w.category == "idle"]
    assert still
    assert still[-1].gpu_hours == pytest.approx(1 / 6, rel=0.2)  # ten minutes of one GPU
    assert still[-1].usd == pytest.approx(4.0 * still[-1].gpu_hours, rel=1e-3)
    assert still[-1].action == "scale"
    assert "still" in still[-1].proposal
    fragments = [w for w in found if w.category == "stranded"]
    assert {w.node for w in fragments} == {"n1"}
    assert fragments[-1].usd == pytest.approx(2.0 * fragments[-1].gpu_hours, rel=1e-3)
    assert not [w for w in found if w.subject == "busy"]
    of_still = sum(w.gpu_hours for w in found if w.subject == "still")
    assert of_still <= (found[-1].time_ns - found[0].from_ns) / NS_PER_S / 3_600.0  # no second counts twice


IDLE = dict.fromkeys(BANDWIDTH, 0.0) | {"hw.gpu.memory.utilization": 0.4, "hw.power": 60.0}


def test_slices_of_one_gpu_are_together_no_more_than_the_gpu() -> None:
    whole = Device(id="n1/0", model=H100, memory_bytes=80 * GIB, mig_enabled=True)
    parts = [
        Device(id=f"n1/0/{i}", model=H100, memory_bytes=10 * GIB, parent=whole.id, mig_profile="1g.10gb")
        for i in range(7)
    ]
    held = tuple(Allocation(workload=f"w{i}", replica="0", devices=(i + 1,)) for i in range(7))
    divided = inventory("n1", devices=(whole, *parts), allocations=held, price_usd_per_hour=4.0)
    cell = Cell(divided, records=[spec(f"w{i}") for i in range(7)], config=FAST)
    idle = [w for w in run(cell, 0, 2000, IDLE, every=SLOW).of(Waste) if w.category == "idle"]
    last = [w for w in idle if w.time_ns == idle[-1].time_ns]
    hours = (last[0].time_ns - last[0].from_ns) / NS_PER_S / 3600.0
    assert len(last) == 7
    assert sum(w.gpu_hours for w in last) == pytest.approx(hours, rel=0.05)
    assert sum(w.usd or 0.0 for w in last) == pytest.approx(4.0 * hours, rel=0.05)


@pytest.mark.parametrize(("notebooks", "stranded"), [(1, True), (16, False)])
def test_fragments_that_only_a_few_notebooks_could_use_are_stranded(notebooks: int, stranded: bool) -> None:
    records = [
        spec("busy", kind="training", gpus_per_replica=8.0, max_replicas=4),
        spec("book", kind="notebook", gpus_per_replica=0.5, max_replicas=notebooks),
    ]
    cell = Cell(node("n1", "busy", gpus=4, free=4), records=records, config=FAST)
    found = run(cell, 0, 1300, COMPUTE | {"hw.gpu.memory.utilization": 0.9}, every=SLOW).of(Waste)
    fragments = [w for w in found if w.category == "stranded"]
    assert bool(fragments) == stranded
    assert all((w.node, w.devices, w.action) == ("n1", 4, "migrate") for w in fragments)
