"""Requests at a gateway wake a workload that has no replica, and nothing flaps."""

import math
from collections.abc import Iterable
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from tests.streams.engine.scene import CELL, CONFIG, FIRST, Agent, Cell, Out, incoming_records, inventory, spec, tick

from flyball_contracts.metrics import GATEWAY, GPU, WORKLOAD
from flyball_contracts.records import (
    Allocation,
    Arrivals,
    Demand,
    DemandTick,
    Forecast,
    Gateway,
    Inventory,
    Scale,
)
from flyball_streams.engine import Directory, Incoming, Lane
from flyball_streams.engine.parameters import Parameters
from flyball_streams.engine.workload import WorkloadLane
from flyball_streams.engine.workload.arrivals import merge_arrivals, with_arrivals

IDLE_S, START_S, EACH = 60.0, 20, 3.0
GRACE = 12
"""Ticks until the lanes of a new cell have heard of each other."""
QUIET = (0.0, 0.0, 0.0)
SIZING = msgspec.structs.replace(CONFIG.sizing, scale_to_zero_after_s=IDLE_S)
WAKING = msgspec.structs.replace(CONFIG, sizing=SIZING)
DOOR = Gateway(workload="chat", name="edge")
NAN = math.nan
S = 10**9


def chat(**changes: Any) -> Any:
    given: dict[str, Any] = {"capacity_per_replica": 10.0, "cold_start_s": float(START_S), "max_replicas": 4}
    return spec("chat", **(given | changes))


def gateway(node: str = "gate", *doors: Gateway) -> Inventory:
    return inventory(node, 0, gateways=doors or (DOOR,))


class Site:
    """A node with GPUs, where replicas come and go, and one with a gateway."""

    def __init__(self, served: Any, config: Parameters = WAKING, gates: Iterable[Inventory] = ()) -> None:
        self.gates = [Agent(gate) for gate in gates or (gateway(),)]
        self.node = inventory("node-1", 4)
        self.cell = Cell(self.node, *(gate.inventory for gate in self.gates), records=[served], config=config)
        self.agent = Agent(self.node)
        self.at = 0
        for _ in range(GRACE):
            self.tick(*(QUIET for _ in self.gates))

    def place(self, replicas: int) -> None:
        held = tuple(Allocation(workload="chat", replica=f"chat-{i}", devices=(i,)) for i in range(replicas))
        self.node = self.agent.inventory = msgspec.structs.replace(
            self.node, allocations=held, epoch=self.node.epoch + 1, time_ns=(FIRST + self.at) * S
        )
        self.cell.feed(incoming_records(self.node))

    def frames(self, seen: list[tuple[float, float, float]], replica: dict[str, float]) -> list[Incoming]:
        """One tick: what each gateway sees (rate, queued, active), and what each replica says."""
        rows = len(self.node.allocations)
        found: list[Incoming] = []
        for agent, schema, values in [
            (self.agent, GPU.schema, np.full((4, len(GPU)), np.nan, np.float32)),
            (self.agent, WORKLOAD.schema, np.full((rows, len(WORKLOAD)), np.nan, np.float32)),
            *((g, GATEWAY.schema, np.array([s], np.float32)) for g, s in zip(self.gates, seen, strict=True)),
        ]:
            if schema == WORKLOAD.schema:
                for key, value in replica.items():
                    values[:, WORKLOAD.column(f"flyball.workload.{key}")] = value
            found.append(agent.frame(self.at, values, schema, agent.seq))
            agent.seq += 1
        self.at += 1
        return found

    def tick(self, *seen: tuple[float, float, float], **replica: float) -> Out:
        given = {key.replace("_", "."): value for key, value in replica.items()}
        return self.cell.feed(self.frames(list(seen), given))


def lanes(of: Cell) -> list[Lane]:
    return [*of.engine.nodes.values(), *of.engine.workloads, *of.engine.cells]


def scales(out: Out) -> list[int]:
    return [d.replicas for d in out.of(Scale)]


@pytest.mark.parametrize("served", [chat(), chat(capacity_per_replica=0.0)], ids=["known", "unknown"])
@pytest.mark.parametrize("seen", [(2.0, NAN, NAN), (NAN, 3.0, NAN), (NAN, NAN, 1.0)], ids=["arrive", "wait", "held"])
def test_a_workload_without_a_replica_is_woken_in_the_tick_of_the_report(served: Any, seen: Any) -> None:
    site = Site(served)
    assert scales(site.tick(QUIET)) == []
    out = site.tick(seen)
    assert scales(out) == [1]
    (woken,) = out.of(Scale)
    assert woken.replicas_before == 0
    assert "nothing runs" in woken.reason
    assert "gateway" in woken.reason
    (reported,) = (t for t in out.of(DemandTick) if t.arrivals)
    assert reported.demands == ()
    assert reported.arrivals[0].workload == "chat"


def test_idle_then_zero_then_woken_then_idle() -> None:
    """Each turn is one decision: to zero, back, and to zero; the work of a request is remembered meanwhile."""
    site = Site(chat())
    decided: list[tuple[int, int]] = []
    replicas, ready_at = 1, 0
    site.place(1)
    for second in range(700):
        requested = 2.0 if second < 60 or 330 <= second < 420 else 0.0
        ready = replicas > 0 and second >= ready_at
        waits = 0.0 if ready else requested * (second - 330)
        replica = {"work_rate": EACH * requested, "request_rate": requested, "request_queued": 0.0, "ready": 1.0}
        replica = {key: value / (1 if key == "ready" else max(replicas, 1)) for key, value in replica.items()}
        if not ready:
            replica = {"ready": 0.0}
        for wanted in scales(site.tick((requested, waits, NAN), **replica)):
            decided.append((second, wanted))
            if wanted > replicas:
                ready_at = second + START_S
            replicas = wanted
            site.place(wanted)
    steps = [wanted for _, wanted in decided]
    assert steps[0] == steps[-1] == 0
    assert 0 not in steps[1:-1]
    assert len(steps) <= 4
    assert decided[0][0] >= 60 + IDLE_S - 2
    assert decided[1][0] == 330
    assert decided[-1][0] >= 420 + IDLE_S - 2


def test_one_request_that_is_refused_is_owed_a_replica() -> None:
    """Where a gateway holds nothing back, a single request is all there is; its replica stays for the idle time."""
    site = Site(chat(cold_start_s=90.0))
    site.tick(QUIET)
    assert scales(site.tick((1.0, NAN, NAN))) == [1]
    for _ in range(20):
        assert scales(site.tick(QUIET)) == []
    site.place(1)
    out = [scales(site.tick(QUIET, ready=float(i > 90), work_rate=0.0)) for i in range(90 + int(IDLE_S) - 25)]
    assert out == [[]] * len(out)
    later = [wanted for _ in range(60) for wanted in scales(site.tick(QUIET, ready=1.0, work_rate=0.0))]
    assert later == [0]


def test_a_proposal_is_published_again_while_the_request_is_owed() -> None:
    """The room may be taken in the tick in which it is asked for."""
    site = Site(chat(gpu_models=("b200",)))
    assert scales(site.tick((1.0, NAN, NAN))) == []
    site.node = msgspec.structs.replace(
        site.node,
        devices=tuple(msgspec.structs.replace(d, model="b200") for d in site.node.devices),
    )
    site.place(0)
    assert scales(Out([m for _ in range(4) for m in site.tick(QUIET).messages])) == [1]


def test_nobody_is_woken_before_it_was_requested() -> None:
    site = Site(chat())
    assert [w for _ in range(60) for w in scales(site.tick(QUIET))] == []


def test_arrivals_at_gateways_replace_those_at_replicas_and_queues_are_added() -> None:
    """Two gateways in front of a service that is sized by what it gets, and never twice."""
    gates = [gateway("gate-1"), gateway("gate-2", Gateway(workload="chat", name="other"))]
    site = Site(chat(capacity_per_replica=100.0), gates=gates)
    site.place(2)
    shown = {"request_rate": 4.0, "work_rate": 40.0, "request_queued": 1.0, "request_active": 2.0, "ready": 1.0}
    out = Out([m for _ in range(8) for m in site.tick((5.0, 2.0, NAN), (3.0, NAN, 7.0), **shown).messages])
    reported = [t for t in out.of(DemandTick) if t.arrivals][-1]
    assert reported.arrivals == (Arrivals(workload="chat", request_rate=8.0, queued=2.0, active=7.0),)
    (demand,) = reported.demands
    assert (demand.request_rate, demand.queued) == (8.0, 2.0)
    found = with_arrivals(demand, reported.arrivals[0], lambda _: NAN)
    assert (found.request_rate, found.work_rate, found.queued) == (8.0, 80.0, 4.0)
    assert out.of(Forecast)[-1].observed == pytest.approx(80.0)


def door(**changes: float) -> Arrivals:
    return Arrivals(workload="w", **changes)


def test_what_waits_at_a_gateway_that_tells_only_of_open_requests() -> None:
    busy = Demand(workload="w", replicas=1, ready=1, devices=1, active=4.0, queued=2.0)
    assert with_arrivals(busy, door(active=9.0), lambda _: NAN).queued == 5.0
    assert with_arrivals(busy, door(active=1.0), lambda _: NAN).queued == 2.0
    silent = msgspec.structs.replace(busy, active=None)
    assert with_arrivals(silent, door(active=9.0), lambda _: NAN).queued == 2.0
    starting = Demand(workload="w", replicas=1, ready=0, devices=1)
    assert with_arrivals(starting, door(active=9.0), lambda _: NAN).queued == 9.0


def test_work_is_claimed_only_where_it_is_known() -> None:
    asleep = Demand(workload="w", replicas=0, ready=0, devices=0)
    assert with_arrivals(asleep, door(request_rate=4.0), lambda _: 2.5).work_rate == 10.0
    assert with_arrivals(asleep, door(request_rate=4.0), lambda _: NAN).work_rate == 0.0
    assert with_arrivals(asleep, door(queued=4.0), lambda _: 2.5).work_rate == 0.0
    served = Demand(workload="w", replicas=1, ready=1, devices=1)
    assert with_arrivals(served, door(request_rate=4.0), lambda _: 2.5).work_rate is None


counts = st.one_of(st.none(), st.integers(0, 2**20).map(float))
published = st.lists(
    st.builds(Arrivals, workload=st.sampled_from("abc"), request_rate=counts, queued=counts, active=counts)
)


@given(st.dictionaries(st.sampled_from(["node/0", "node/1", "node/2"]), published.map(tuple)))
@settings(deadline=None, max_examples=50)
def test_sources_are_added_whatever_their_order(parts: dict[str, tuple[Arrivals, ...]]) -> None:
    merged = merge_arrivals(parts)
    assert merged == merge_arrivals(dict(reversed(parts.items())))
    for name in "abc":
        rates = [one.request_rate for reported in parts.values() for one in reported if one.workload == name]
        known = [rate for rate in rates if rate is not None]
        assert (name in merged) == bool(rates)
        if rates:
            assert merged[name].request_rate == (sum(known) if known else None)


def test_an_open_tick_goes_on_from_a_snapshot() -> None:
    """What a gateway said before the snapshot counts when the tick closes after it, in either lane."""
    site, twin = Site(chat()), Site(chat())
    for one in (site, twin):
        one.tick(QUIET)
    *first, last = reversed(site.frames([(2.0, NAN, NAN)], {}))
    assert scales(site.cell.feed(first)) == []
    for mine, theirs in zip(lanes(site.cell), lanes(twin.cell), strict=True):
        theirs.restore(mine.snapshot())
    assert scales(twin.cell.feed([last])) == scales(site.cell.feed([last])) == [1]

    directory = Directory()
    directory.apply(chat())
    old, new = (WorkloadLane(0, WAKING, directory, 1) for _ in range(2))
    sources = ("node/0", "node/1")
    for i in range(GRACE):
        old.step(
            incoming_records(*(DemandTick(cell=CELL, source=source, tick=tick(i), partition=0) for source in sources))
        )
    arrived = (Arrivals(workload="chat", request_rate=1.0),)
    first_of_it = DemandTick(cell=CELL, source="node/0", tick=tick(GRACE), partition=0, arrivals=arrived)
    assert old.step(incoming_records(first_of_it)) == []
    new.restore(old.snapshot())
    rest = incoming_records(DemandTick(cell=CELL, source="node/1", tick=tick(GRACE), partition=0))
    messages = [lane.step(rest) for lane in (old, new)]
    assert messages[0] == messages[1]
    assert [p.replicas for p in Out(messages[1]).proposals()] == [1]
