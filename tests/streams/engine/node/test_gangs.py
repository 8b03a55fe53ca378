"""Stragglers of gangs that no node lane sees whole."""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.streams.engine.scene import CONFIG, ONE, Agent, Out, Values, incoming_records, inventory, spec

from flyball_contracts.codec import Message
from flyball_contracts.metrics import GPU
from flyball_contracts.partitioner import partition_of
from flyball_contracts.records import Allocation, Anomaly, Device, Inventory, Member, Migrate
from flyball_contracts.topics import TELEMETRY
from flyball_streams.engine import Engine
from flyball_streams.engine.node.detectors.gangs import MOST_CLOCKS, SLOWEST

CLOCK = "nvidia.gpu.clock.frequency{clock=sm}"
FULL_HZ, SLOW_HZ, OLD_HZ = 1.98e9, 1.5e9, 1.75e9


def names(partitions: int, each: int) -> list[str]:
    """Nodes of which every partition of telemetry has as many."""
    found: dict[int, list[str]] = {p: [] for p in range(partitions)}
    for n in range(1000):
        name = f"node-{n}"
        of = found[partition_of(name.encode(), partitions)]
        if len(of) < each:
            of.append(name)
    return [name for part in found.values() for name in part]


class Site:
    """A gang of one GPU on each of some nodes, and a spare node, over several partitions of telemetry."""

    def __init__(self, partitions: int, each: int = 2, models: Sequence[str] = ("h100",)) -> None:
        self.partitions = partitions
        self.nodes = names(partitions, each)
        held = [
            inventory(
                n,
                1,
                [Allocation(workload="train", replica=f"r{i}", devices=(0,))],
                devices=(Device(id=f"{n}/0", model=models[i % len(models)], memory_bytes=80),),
            )
            for i, n in enumerate(self.nodes)
        ]
        self.agents = [Agent(node) for node in (*held, inventory("spare", 2))]
        self.engine = Engine(CONFIG, ONE | {TELEMETRY.name: partitions})
        gang = spec("train", kind="training", gang_size=len(held), max_replicas=len(held), interruptible=True)
        self.engine.feed(incoming_records(*(a.inventory for a in self.agents), gang))

    def run(self, first: int, count: int, slow: str = "", **more: float) -> list[Message]:
        made: list[Message] = []
        for index in range(first, first + count):
            batch: list[Any] = []
            for agent in self.agents:
                name = agent.inventory.node
                full_hz = FULL_HZ if agent.inventory.devices[0].model == "h100" else OLD_HZ
                shown = {CLOCK: SLOW_HZ if slow in (name, "all") else full_hz} | (more if name == slow else {})
                place = partition_of(name.encode(), self.partitions)
                batch += [m._replace(partition=place) for m in agent.frames(index, Values(shown), schemas=[1])]
            made += self.engine.feed(batch)
        return made


def test_a_straggler_of_a_gang_over_three_partitions_is_found() -> None:
    site = Site(3)
    slow = site.nodes[3]
    out = Out([*site.run(0, 15), *site.run(15, 25, slow)])
    assert {(a.subject, a.detector, a.workload) for a in out.of(Anomaly)} == {(f"{slow}/0", "straggling", "train")}
    assert out.of(Migrate) == [], "one metric for less than a minute moves nothing"
    out = Out(site.run(40, 50, slow))
    moves = out.of(Migrate)
    assert {(m.workload, m.replica, m.from_node, m.from_device) for m in moves} == {("train", "r3", slow, f"{slow}/0")}
    assert "its SM clock is 1500 MHz where its 5 peers run at 1980 MHz" in moves[0].reason


def test_a_gang_in_one_partition_is_judged_once_and_tells_no_clocks() -> None:
    site = Site(1, 6)
    out = Out([*site.run(0, 15), *site.run(15, 25, site.nodes[3])])
    assert not any(d.clocks for d in out.demands())
    assert len([a for a in out.of(Anomaly) if a.detector == "straggling"]) == 1


@pytest.mark.parametrize(("partitions", "each"), [(3, 4), (1, 12)])
def test_a_gang_on_two_models_is_two_groups_of_peers(partitions: int, each: int) -> None:
    """Every fourth GPU is of an older model, whose clock is lower: only the one that is slow for its model is named."""
    site = Site(partitions, each, ("h100", "h100", "h100", "a100"))
    slow = site.nodes[3]
    out = Out([*site.run(0, 15), *site.run(15, 25, slow)])
    found = [a for a in out.of(Anomaly) if a.detector == "straggling"]
    assert {a.subject for a in found} == {f"{slow}/0"}
    assert found[0].evidence[0].expected == pytest.approx(OLD_HZ)


@pytest.mark.parametrize(("partitions", "each"), [(3, 2), (1, 6)])
def test_a_clock_that_is_a_little_lower_is_no_straggler(partitions: int, each: int) -> None:
    site = Site(partitions, each)
    slow = site.nodes[3]
    little, more = {CLOCK: 0.975 * FULL_HZ}, {CLOCK: 0.95 * FULL_HZ}
    assert Out([*site.run(0, 15), *site.run(15, 15, slow, **little)]).of(Anomaly) == []
    assert {a.subject for a in Out(site.run(30, 15, slow, **more)).of(Anomaly)} == {f"{slow}/0"}


def test_a_gang_that_is_slow_as_a_whole_has_no_straggler() -> None:
    site = Site(3)
    out = Out([*site.run(0, 15), *site.run(15, 25, "all")])
    assert out.of(Anomaly) == []


def test_a_failing_device_is_not_called_a_straggler_too() -> None:
    site = Site(3)
    slow = site.nodes[3]
    broken = {"hw.errors{type=uncorrected}": 3.0}
    out = Out([*site.run(0, 15), *site.run(15, 25, slow, **broken)])
    assert {a.detector for a in out.of(Anomaly)} == {"failing"}


def test_a_restart_between_two_ticks_changes_nothing() -> None:
    plain, again = Site(3), Site(3)
    slow = plain.nodes[3]
    whole = plain.run(0, 40, slow)
    made = again.run(0, 8, slow)
    for lane in again.engine.workloads:
        state = lane.snapshot()
        lane.restore(state)
        assert lane.snapshot() == state
    assert [*made, *again.run(8, 32, slow)] == whole


def test_many_members_are_reported_by_their_quantiles() -> None:
    gpus = 40
    held = tuple(Allocation(workload="train", replica=f"r{i}", devices=(i,)) for i in range(gpus))
    here, there = (
        inventory("node-0", gpus, held),
        inventory("node-1", 1, [msgspec.structs.replace(held[0], replica="x")]),
    )
    engine = Engine(CONFIG, ONE | {TELEMETRY.name: 2})
    engine.feed(incoming_records(here, there, spec("train", kind="training", gang_size=41, max_replicas=41)))
    agents: list[tuple[Agent, Inventory]] = [(Agent(node), node) for node in (here, there)]
    made: list[Message] = []
    clock = FULL_HZ - 1e6 * np.arange(gpus, dtype=np.float32)
    for index in range(8):
        for agent, node in agents:
            values = Values({CLOCK: clock[: len(node.devices)]})
            place = agents.index((agent, node))
            made += engine.feed(
                [m._replace(partition=place) for m in agent.frames(index, values, schemas=[GPU.schema])]
            )
    told_ = [c for d in Out(made).demands() for c in d.clocks if c.members == gpus]
    assert told_
    assert len(told_[0].clocks_hz) == MOST_CLOCKS
    assert list(told_[0].clocks_hz) == sorted(told_[0].clocks_hz)
    assert [m.device for m in told_[0].slowest] == [f"node-0/{gpus - 1 - i}" for i in range(SLOWEST)]
    assert isinstance(told_[0].slowest[0], Member)
