"""Demand of a workload: the sum over whoever reported it, however the nodes and ticks are cut up."""

import math
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from tests.streams.engine.scene import (
    CONFIG,
    ONE,
    Agent,
    Cell,
    Out,
    Values,
    incoming,
    incoming_records,
    inventory,
    spec,
    tick,
)

from flyball_contracts.codec import record_message
from flyball_contracts.partitioner import partition_of
from flyball_contracts.records import Allocation, Demand, DemandTick, Inventory, ProposalTick, Tick
from flyball_contracts.topics import EVENTS, TELEMETRY
from flyball_streams.engine import Directory, Engine
from flyball_streams.engine.node import NodeLane
from flyball_streams.engine.node.demand.ticks import WORKLOAD_BYTES, demand_ticks
from flyball_streams.engine.workload.merge import merge

WORKLOADS = ("a", "b", "c")
readings = st.one_of(st.just(math.nan), st.floats(0, 2**20, width=32))
SETTINGS = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


class Node(NamedTuple):
    inventory: Inventory
    values: Values


@st.composite
def cells(draw: st.DrawFn) -> list[Node]:
    """Nodes with any allocations, some of them naming rows that do not exist, and any readings."""
    nodes: list[Node] = []
    for n in range(draw(st.integers(1, 3))):
        gpus = draw(st.integers(0, 4))
        free = list(range(gpus))
        allocations: list[Allocation] = []
        for a in range(draw(st.integers(0, 4))):
            count = draw(st.integers(0, len(free)))
            devices, free = tuple(free[:count]), free[count:]
            stray = draw(st.sampled_from([(), (-1,), (gpus,), (10**6,)]))
            allocations.append(
                Allocation(workload=draw(st.sampled_from(WORKLOADS)), replica=f"{n}-{a}", devices=devices + stray)
            )

        def column(rows: int) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
            return np.array([draw(readings) for _ in range(rows)], np.float32)

        rows = len(allocations)
        values = Values(
            {"hw.gpu.utilization{task=general}": column(gpus), "hw.power": column(gpus)},
            {},
            {
                "flyball.workload.request.rate": column(rows),
                "flyball.workload.work.rate": column(rows),
                "flyball.workload.request.queued": column(rows),
                "flyball.workload.ready": np.array([draw(st.sampled_from([0, 1])) for _ in range(rows)], np.float32),
            },
        )
        nodes.append(Node(inventory(f"node-{n}", gpus, allocations), values))
    return nodes


def total(values: list[float]) -> Any:
    known = [v for v in values if math.isfinite(v)]
    return pytest.approx(math.fsum(known), rel=1e-12, abs=1e-12) if known else None


def expected(nodes: list[Node], workload: str) -> dict[str, object] | None:
    """The same sums, one reading after the other."""
    held: list[tuple[Node, int, Allocation]] = [
        (node, row, a) for node in nodes for row, a in enumerate(node.inventory.allocations) if a.workload == workload
    ]
    if not held:
        return None
    devices = [(n, d) for n, _, a in held for d in a.devices if 0 <= d < len(n.inventory.devices)]

    def over(layout: str, key: str) -> Any:
        if layout == "gpu":
            return total([float(np.asarray(n.values.gpu[key])[d]) for n, d in devices])
        return total([float(np.asarray(n.values.workload[key])[row]) for n, row, _ in held])

    return {
        "replicas": len(held),
        "ready": sum(int(np.asarray(n.values.workload["flyball.workload.ready"])[row]) for n, row, _ in held),
        "devices": len(devices),
        "work_rate": over("workload", "flyball.workload.work.rate"),
        "request_rate": over("workload", "flyball.workload.request.rate"),
        "queued": over("workload", "flyball.workload.request.queued"),
        "utilization_sum": over("gpu", "hw.gpu.utilization{task=general}"),
        "power_w": over("gpu", "hw.power"),
    }


def shown(demand: Demand, names: dict[str, object]) -> dict[str, object]:
    return {name: getattr(demand, name) for name in names}


@given(cells())
@SETTINGS
def test_sums_are_those_of_plain_python(nodes: list[Node]) -> None:
    cell = Cell(*(node.inventory for node in nodes))
    agents = list(zip(cell.agents, nodes, strict=True))
    found: list[Demand] = []
    for i in range(CONFIG.lateness_ticks + 1):
        found += cell.feed([f for agent, node in agents for f in agent.frames(i, node.values)]).demands()
    last = {d.workload: d for d in found}
    for workload in WORKLOADS:
        want = expected(nodes, workload)
        assert (workload in last) == (want is not None)
        if want is not None:
            assert shown(last[workload], want) == want


@given(cells(), st.integers(1, 3))
@SETTINGS
def test_partitions_sum_to_the_same_as_one(nodes: list[Node], partitions: int) -> None:
    directory = Directory()
    lanes = [NodeLane(p, CONFIG, directory, 1) for p in range(partitions)]
    for node in nodes:
        directory.apply(node.inventory)
    agents = [Agent(node.inventory) for node in nodes]
    by_tick: dict[int, dict[str, dict[str, Demand]]] = {}
    for i in range(CONFIG.lateness_ticks + 1):
        for p, lane in enumerate(lanes):
            mine = [
                f for n, agent in enumerate(agents) if n % partitions == p for f in agent.frames(i, nodes[n].values)
            ]
            for published in Out(lane.step(mine)).of(DemandTick):
                by_tick.setdefault(published.tick.index, {})[published.source] = {
                    d.workload: d for d in published.demands
                }
    for parts in by_tick.values():
        merged = merge(parts)
        assert merged == merge(dict(reversed(parts.items())))  # to the bit, whatever the order
        for workload, demand in merged.items():
            want = expected(nodes, workload)
            assert want is not None
            assert shown(demand, want) == want


@given(st.integers(0, 30), st.integers(1, 5))
def test_each_demand_is_published_once_to_the_partition_of_its_workload(count: int, partitions: int) -> None:
    demands = [Demand(workload=f"w{i}", replicas=1, ready=1, devices=1) for i in range(count)]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("flyball_streams.engine.node.demand.ticks.MOST_BYTES", 3 * WORKLOAD_BYTES)
        published = list(demand_ticks(demands, partitions, "c", "node/0", tick(0)))
    assert sorted(d.workload for s in published for d in s.demands) == sorted(d.workload for d in demands)
    for s in published:
        assert all(partition_of(d.workload.encode(), partitions) == s.partition for d in s.demands)
        assert len(s.demands) <= 3
    marks = [s.partition for s in published if s.part == s.parts - 1]
    assert marks == list(range(partitions))


def test_progress_is_the_mean_over_the_replicas_of_all_partitions() -> None:
    def part(replicas: int, progress: float | None) -> dict[str, Demand]:
        return {"a": Demand(workload="a", replicas=replicas, ready=0, devices=0, progress=progress)}

    parts = {"node/0": part(3, 0.2), "node/1": part(1, 0.6), "node/2": part(4, None)}
    assert merge(parts)["a"].progress == pytest.approx(0.3)


@given(st.lists(st.integers(1, 4), min_size=1, max_size=6), st.integers(0, 3))
@SETTINGS
def test_batches_of_whole_ticks_may_be_cut_anywhere(cuts: list[int], seed: int) -> None:
    """One tick at a time, or many at once: the messages are the same, one tick after the other."""
    random = np.random.default_rng(seed)
    node = inventory("node-1", 2, [Allocation(workload="a", replica="0", devices=(0, 1))])
    values = [
        Values(
            {"hw.gpu.utilization{task=general}": float(random.uniform()), "hw.power": float(random.uniform(80, 700))},
            {"system.cpu.utilization": float(random.uniform())},
            {"flyball.workload.work.rate": float(random.uniform(0, 900))},
        )
        for _ in range(sum(cuts))
    ]
    service = spec("a", capacity_per_replica=100.0)
    by_tick, by_cut = Cell(node, records=[service]), Cell(node, records=[service])
    plain = [m for i, v in enumerate(values) for m in by_tick.feed(by_tick.agents[0].frames(i, v)).messages]
    cut: list[object] = []
    first = 0
    for n in cuts:
        batch = [f for i in range(first, first + n) for f in by_cut.agents[0].frames(i, values[i])]
        cut += by_cut.feed(batch).messages
        first += n
    assert sorted(cut, key=repr) == sorted(plain, key=repr)


def test_a_replica_that_is_gone_with_its_node_no_longer_counts() -> None:
    a = Allocation(workload="a", replica="0", devices=(0,))
    b = Allocation(workload="a", replica="1", devices=(0,))
    cell = Cell(inventory("node-1", 1, [a]), inventory("node-2", 1, [b]))
    cell.run(0, 5)
    cell.agents.pop()
    soon = cell.run(5, 20).demands()
    assert soon[-1].replicas == 2  # silent is not gone
    late = cell.run(25, 620).demands()
    assert late[-1].replicas == 1


def test_a_workload_without_a_specification_is_visible_and_harmless() -> None:
    a = Allocation(workload="nobody", replica="0", devices=(0,))
    cell = Cell(inventory("node-1", 1, [a]))
    values = Values({"hw.gpu.utilization{task=general}": 1.0}, {}, {"flyball.workload.work.rate": 5.0})
    out = cell.run(0, 12, values)
    assert {d.workload for d in out.demands()} == {"nobody"}
    assert out.refusals() == []
    assert cell.engine.stats()["workload/0"].without_spec == 1
    cell.feed(incoming_records(spec("nobody")))
    cell.run(12, 3, values)
    assert cell.engine.stats()["workload/0"].without_spec == 0


def test_lanes_that_count_ticks_differently_are_reported() -> None:
    cell = Cell(inventory("node-1", 1))
    out = cell.run(0, 8)
    (mark, *_) = out.of(DemandTick)
    slow = DemandTick(cell=mark.cell, source="node/9", tick=Tick(index=7, period_ns=10**10), partition=0)
    lane = cell.engine.workloads[0]
    message = record_message(slow, "/node/9")
    (reason,) = Out(lane.step([incoming(message)])).refusals()
    assert reason == (
        "node/9 counts the ticks of cell 'cell-1' in 10 s, this lane in 1 s; "
        "give all agents of a cell the same agent.period_s"
    )


def test_a_node_lane_that_lies_about_time_moves_nobody() -> None:
    """A node lane with one node believes that node's clock; the cell does not."""
    engine = Engine(CONFIG, ONE | {TELEMETRY.name: 2, EVENTS.name: 2})
    nodes = [inventory("node-1", 1), inventory("node-2", 1)]
    engine.feed(incoming_records(*nodes))
    agents = [Agent(node) for node in nodes]
    ticks: list[int] = []
    for i in range(60):
        frames = [
            f._replace(partition=p)
            for p, agent in enumerate(agents)
            for f in agent.frames(i + (3600 if p and i > 20 else 0))
        ]
        ticks += [m.tick.index for m in Out(engine.feed(frames)).of(ProposalTick) if m.source == "workload/0"]
    assert ticks == sorted(ticks)
    assert max(ticks) < agents[0].inventory.time_ns // 10**9 + 60
    assert engine.stats()["workload/0"].early > 0
