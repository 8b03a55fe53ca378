"""Hosts that hold up their GPUs' work are named, with what they wait for, and lead the incident of their gang."""

from collections.abc import Mapping

import numpy as np
import pytest
from tests.streams.engine.scene import CONFIG, PERIOD_NS, START_NS, Agent, Cell, Out, Values, inventory, spec

from flyball_contracts.codec import Message
from flyball_contracts.metrics import GPU, HOST, USAGE, WORKLOAD
from flyball_contracts.records import Allocation, Anomaly, Incident
from flyball_streams.engine import Incoming
from flyball_streams.engine.node.detectors.pressure import LASTS_S, MOST

CPU, IO = (f"system.linux.psi.total_time{{resource={kind},stall=some}}" for kind in ("cpu", "io"))
PORT = "system.network.errors{direction=receive}"
WELL = {CPU: 0.03, IO: 0.01, PORT: 0.0}
WARM = 320
EVERY = 10
"""Seconds of a tick; what hosts wait for, and errors of ports, are sums over it."""


def scene(*, free: bool = False) -> Cell:
    held = [Allocation(workload="train", replica=str(i), devices=(i,)) for i in range(2)]
    nodes = [inventory(f"node-{n}", 2, () if free else [held[n]]) for n in range(2)]
    return Cell(*nodes, records=[spec("train", kind="training", max_replicas=2)], config=CONFIG)


def frames(agent: Agent, index: int, values: Values) -> list[Incoming]:
    """Frames of a tick of ``EVERY`` seconds; ``values`` are those of a second."""
    made: list[Incoming] = []
    held, sums = agent.inventory, (CPU, IO, PORT)
    for layout, rows, shown in (
        (GPU, len(held.devices), values.gpu),
        (HOST, 1, values.host),
        (WORKLOAD, len(held.allocations), values.workload),
    ):
        block = np.full((rows, len(layout)), np.nan, np.float32)
        for key, value in shown.items():
            block[:, layout.column(key)] = value * EVERY if key in sums else value
        made.append(agent.frame(index, block, layout.schema, agent.seq, period_ns=EVERY * PERIOD_NS))
        agent.seq += 1
    return made


def run(cell: Cell, first: int, last: int, shown: Mapping[str, float], step_s: float = 1.0) -> Out:
    """Node 1 shows this, node 0 is well; steps take so long on both."""
    messages: list[Message] = []
    for index in range(first, last, EVERY):
        batch: list[Incoming] = []
        for agent, host in zip(cell.agents, (WELL, {**WELL, **shown}), strict=True):
            step = {"flyball.workload.step.time": step_s}
            batch += frames(agent, index, Values({"hw.power": 500.0}, {"system.cpu.utilization": 0.3, **host}, step))
        messages += cell.engine.feed(batch)
    return Out(messages)


def named(out: Out) -> list[tuple[str, str]]:
    return [(a.subject, a.evidence[0].name) for a in out.of(Anomaly) if a.detector in ("pressure", "network")]


@pytest.mark.parametrize(
    ("shown", "cause"), [({CPU: 0.5}, "host"), ({IO: 0.6, CPU: 0.3}, "storage"), ({PORT: 20.0}, "network")]
)
def test_a_node_that_waits_is_the_incident_of_the_gang_that_slows_down(shown: dict[str, float], cause: str) -> None:
    cell = scene()
    assert run(cell, 0, WARM, {}).of(Incident) == []
    out = run(cell, WARM, WARM + 180, shown, step_s=1.5)
    assert named(out)[0] == ("node-1", next(iter(shown)))
    last = {one.id: one for one in out.of(Incident)}
    (one,) = (i for i in last.values() if i.status == "open")
    assert (one.level, one.node, one.cause, one.strength) == ("node", "node-1", cause, "sign")
    assert {s.detector for s in one.symptoms} >= {"step_time"}
    assert out.proposals() == [] or all(p.action != "migrate" for p in out.proposals())
    assert one.onset_ns >= START_NS + (WARM - EVERY) * PERIOD_NS


def test_what_is_short_small_usual_or_on_a_node_without_work_is_not_told() -> None:
    cell = scene()
    run(cell, 0, WARM, {})
    assert named(run(cell, WARM, WARM + int(LASTS_S) - 10, {CPU: 0.5})) == []
    assert named(run(cell, WARM + 50, WARM + 200, {CPU: 0.15, PORT: 0.01})) == []
    usual = scene()
    assert named(run(usual, 0, WARM + 200, {CPU: 0.5})) == [], "it has always been so"
    free = scene(free=True)
    run(free, 0, WARM, {})
    assert named(run(free, WARM, WARM + 100, {CPU: 0.5, PORT: 20.0})) == []


def test_what_comes_and_goes_is_learned_and_what_lasts_is_still_told() -> None:
    cell = scene()
    run(cell, 0, WARM, {})
    first = run(cell, WARM, WARM + 120, {IO: 0.6})
    run(cell, WARM + 120, WARM + 440, {})
    again = run(cell, WARM + 440, WARM + 560, {IO: 0.6})
    run(cell, WARM + 560, WARM + 580, {})
    other = run(cell, WARM + 580, WARM + 700, {CPU: 0.6})
    assert (named(first), named(again), named(other)) == ([("node-1", IO)], [], [("node-1", CPU)])
    lasts = run(cell, WARM + 720, WARM + 720 + int(MOST * LASTS_S) + 5, {IO: 0.6})
    assert named(lasts)[0] == ("node-1", IO)


@pytest.mark.parametrize(("cpus", "cause"), [((4.0, 60.0), "neighbour"), ((60.0, 4.0), "host"), ((30.0, 20.0), "host")])
def test_who_holds_few_gpus_and_most_of_the_cpu_is_the_neighbour(cpus: tuple[float, float], cause: str) -> None:
    held = [
        Allocation(workload="train", replica="0", devices=(0, 1, 2)),
        Allocation(workload="b", replica="0", devices=(3,)),
    ]
    cell = Cell(inventory("node-1", 4, held), records=[spec("train", kind="training"), spec("b", kind="batch")])
    (agent,) = cell.agents
    found: list[Incident] = []
    for index in range(0, WARM + 100, EVERY):
        host = WELL | ({CPU: 0.5} if index >= WARM else {})
        used = np.full((2, len(USAGE)), np.nan, np.float32)
        used[:, USAGE.column("container.cpu.time")] = np.multiply(cpus, EVERY)
        batch = frames(agent, index, Values({"hw.power": 500.0}, {"system.cpu.utilization": 0.3, **host}))
        batch.append(agent.frame(index, used, USAGE.schema, agent.seq, period_ns=EVERY * PERIOD_NS))
        agent.seq += 1
        found += Out(cell.engine.feed(batch)).of(Incident)
    assert {(one.level, one.node, one.cause) for one in found} == {("node", "node-1", cause)}
    first = found[0].symptoms[0].evidence[0]
    assert first.name == ("container.cpu.time{workload=b}" if cause == "neighbour" else CPU)
