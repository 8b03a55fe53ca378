"""Once a minute a node lane says how soon each replica answered."""

from collections.abc import Sequence

import msgspec
import numpy as np
import pytest
from tests.streams.engine.scene import CELL, inventory

from flyball_contracts.metrics import SERVING, WORKLOAD
from flyball_contracts.records import Allocation, Demand, DemandTick, Latencies, Tick
from flyball_streams.engine.node.demand.latencies import MOST_REPLICAS, ReplicaLatencies
from flyball_streams.engine.node.demand.ticks import MOST_BYTES, REPLICA_BYTES, demand_ticks
from flyball_streams.engine.node.tenancy import Tenancy
from flyball_streams.engine.packing import pack, unpack

LATENCY, ACTIVE, QUEUED, READY = (
    WORKLOAD.column(f"flyball.workload.{key}")
    for key in ("latency{stat=mean}", "request.active", "request.queued", "ready")
)
TOKEN = SERVING.column("gen_ai.server.time_per_output_token{stat=mean}")
NAN = float("nan")


def tenancy(*replicas: str, workload: str = "chat") -> Tenancy:
    """A node with one GPU for each replica."""
    held = [Allocation(workload=workload, replica=name, devices=(row,)) for row, name in enumerate(replicas)]
    node = inventory("node-1", len(held), held)
    return Tenancy({"node-1": node}, {d.id: row for row, d in enumerate(node.devices)}, 8)


def tick(meter: ReplicaLatencies, values: Sequence[Sequence[float]], tokens: Sequence[float] | None = None) -> None:
    """One tick: latency, active, queued and ready of each replica, and the times of its output tokens."""
    rows = np.full((len(values), len(WORKLOAD)), np.nan, np.float32)
    rows[:, [LATENCY, ACTIVE, QUEUED, READY]] = values
    if tokens is not None:
        answers = np.full((len(tokens), len(SERVING)), np.nan, np.float32)
        answers[:, TOKEN] = tokens
        meter.note_tokens(0, answers)
    meter.note(rows)


def drained(meter: ReplicaLatencies, held: Tenancy) -> tuple[Latencies, ...]:
    demands = [Demand(name, 1, 1, 1) for name in held.workloads]
    return meter.drain(demands, held)[0].latencies if demands else ()


def started(held: Tenancy) -> ReplicaLatencies:
    meter = ReplicaLatencies()
    meter.follow(held)
    return meter


def test_a_minute_is_the_geometric_mean_of_its_ticks() -> None:
    held = tenancy("a", "b", "c")
    meter = started(held)
    tick(meter, [[1.0, 2.0, 1.0, NAN], [NAN, 0.0, NAN, NAN], [NAN, NAN, NAN, NAN]])
    tick(meter, [[4.0, 4.0, 1.0, NAN], [NAN, 0.0, NAN, NAN], [NAN, NAN, NAN, NAN]])
    (found,) = drained(meter, held)
    assert (found.replicas, found.nodes, found.model, found.per) == (("a", "b"), ("node-1",) * 2, "h100", "request")
    assert list(found.latency_s) == [pytest.approx(2.0), None]  # b answered nothing; c says nothing of requests at all
    assert found.requests == (4.0, 0.0)
    assert drained(meter, held) == ()  # a new minute


def test_output_tokens_are_compared_where_they_are_reported() -> None:
    held = tenancy("a", "b")
    meter = started(held)
    tick(meter, [[9.0, 1.0, 0.0, 1.0], [7.0, 1.0, 0.0, 1.0]], [0.02, NAN])
    other, found = drained(meter, held)
    assert (found.per, found.replicas) == ("output_token", ("a",))
    assert (other.per, other.replicas) == ("request", ("b",))
    assert [*found.latency_s, *other.latency_s] == pytest.approx([0.02, 7.0])


def test_a_replica_without_an_answer_is_among_those_that_report_output_tokens() -> None:
    held = tenancy("a", "b")
    meter = started(held)
    tick(meter, [[9.0, 1.0, 0.0, 1.0], [NAN, 1.0, 0.0, 1.0]], [0.02, NAN])
    (found,) = drained(meter, held)
    assert (found.per, found.replicas) == ("output_token", ("a", "b"))
    assert found.latency_s[1] is None


def test_replicas_that_were_not_ready_are_left_out() -> None:
    held = tenancy("a", "b")
    meter = started(held)
    tick(meter, [[1.0, 1.0, 0.0, 1.0], [NAN, 0.0, 3.0, 0.0]])
    tick(meter, [[1.0, 1.0, 0.0, 1.0], [1.0, 1.0, 0.0, 1.0]])
    assert [found.replicas for found in drained(meter, held)] == [("a",)]


def test_values_out_of_range_are_no_latencies() -> None:
    held = tenancy("a")
    meter = started(held)
    for value in (-1.0, 0.0, float("inf"), 1e30):
        tick(meter, [[value, 1.0, NAN, NAN]])
    (found,) = drained(meter, held)
    assert found.latency_s == (None,)


def test_a_replica_that_stays_keeps_its_sums_when_another_comes_and_one_that_goes_is_dropped() -> None:
    before, after = tenancy("a", "b"), tenancy("b", "c")
    meter = started(before)
    tick(meter, [[1.0, 1.0, 0.0, NAN], [2.0, 1.0, 0.0, NAN]])
    meter.follow(after)
    tick(meter, [[8.0, 1.0, 0.0, NAN], [5.0, 1.0, 0.0, NAN]])
    (found,) = drained(meter, after)
    assert found.replicas == ("b", "c")
    assert list(found.latency_s) == pytest.approx([4.0, 5.0])


def test_a_snapshot_within_a_minute_changes_no_bit() -> None:
    held = tenancy("a", "b")
    random = np.random.default_rng(2)
    rows = [[[*random.random(3).tolist(), 1.0] for _ in range(2)] for _ in range(50)]
    whole, cut = started(held), started(held)
    for at, values in enumerate(rows):
        tick(whole, values, [0.1 + at, 0.2])
        tick(cut, values, [0.1 + at, 0.2])
        if at % 7 == 3:
            state, cut = cut.state(), ReplicaLatencies()
            cut.load(unpack(pack(state)), held)
    assert drained(whole, held) == drained(cut, held)


def test_a_service_of_thousands_of_replicas_gets_messages_of_its_own() -> None:
    def service(name: str, replicas: int) -> Demand:
        names = tuple(f"{name}-{'x' * 40}-{i:05d}" for i in range(replicas))
        found = Latencies(replicas=names, nodes=names, latency_s=(0.1234567,) * replicas, requests=(12.5,) * replicas)
        return Demand(name, replicas, replicas, replicas, latencies=(found,))

    demands = [service("a", MOST_REPLICAS), service("b", MOST_REPLICAS), service("c", 3)]
    sent = list(demand_ticks(demands, 1, CELL, "node/0", Tick(index=1, period_ns=1)))
    assert [[d.workload for d in one.demands] for one in sent] == [["a"], ["b", "c"]]
    assert [(one.part, one.parts) for one in sent] == [(0, 2), (1, 2)]
    assert MOST_REPLICAS * REPLICA_BYTES < MOST_BYTES
    assert all(isinstance(one, DemandTick) and len(msgspec.json.encode(one)) < 900_000 for one in sent)
