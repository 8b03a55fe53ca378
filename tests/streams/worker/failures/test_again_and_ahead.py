"""What a restart brings: things said twice, and events read before the telemetry of their time."""

from typing import Any

from tests.streams.worker.rig import PARTITIONS, Simulated, incoming

from flyball_contracts.codec import Message, decode_message, record_message
from flyball_contracts.records import Demand, DemandTick, Forecast, Tick, WorkloadSpec
from flyball_contracts.topics import DECISIONS, EVENTS
from flyball_streams.engine import Directory, Engine, Incoming
from flyball_streams.engine.parameters import ForecastParameters, Parameters
from flyball_streams.engine.workload import WorkloadLane

TICKS = 40


def demand(source: str, index: int, *, part: int = 0, parts: int = 1) -> Incoming:
    published = Demand(workload="w", replicas=1, ready=1, devices=1, work_rate=3.0)
    tick = Tick(index=index, period_ns=1_000_000_000)
    record = DemandTick(
        cell="c", source=source, tick=tick, partition=0, demands=(published,) * (part == 0), part=part, parts=parts
    )
    return incoming(record_message(record, "/test"))


def observed(batches: list[list[Incoming]]) -> list[float | None]:
    """What the workload lane took for the demand of each tick."""
    directory = Directory()
    directory.apply(
        WorkloadSpec(workload="w", cell="c", time_ns=0, kind="inference", max_replicas=9, capacity_per_replica=1.0)
    )
    lane = WorkloadLane(0, Parameters(forecast=ForecastParameters(publish_every_ticks=1)), directory, 1)
    made = [decode_message(m.topic, m.value, m.headers) for batch in batches for m in lane.step(batch)]
    return [record.observed for record in made if isinstance(record, Forecast)]


def test_demand_published_again_counts_once() -> None:
    plain = observed([[demand(node, i) for node in ("node/0", "node/1")] for i in range(12)])
    again = observed([2 * [demand(node, i) for node in ("node/0", "node/1")] for i in range(12)])
    assert plain == again
    assert plain
    assert set(plain) == {6.0}


def test_demand_in_parts_is_whole_with_the_last() -> None:
    parts = [[demand("node/0", i, part=part, parts=2) for part in (0, 1)] for i in range(12)]
    assert observed(parts) == observed([[demand("node/0", i)] for i in range(12)])
    assert observed([[part] for part, _ in parts]) == []


def decisions(batches: list[list[Message]]) -> list[Any]:
    engine = Engine(Parameters(), PARTITIONS)
    sent = [out for batch in batches for out in engine.feed([incoming(m) for m in batch])]
    return [decode_message(m.topic, m.value, m.headers) for m in sent if m.topic == DECISIONS.name]


def test_events_read_ahead_wait_for_their_time() -> None:
    simulated = Simulated(TICKS)
    events = [m for tick in simulated.ticks for m in tick if m.topic == EVENTS.name]
    others = [[m for m in tick if m.topic != EVENTS.name] for tick in simulated.ticks]
    assert events
    expected = decisions([simulated.start, *simulated.ticks])
    assert any("XID" in d.reason for d in expected)
    assert decisions([simulated.start, events, *others]) == expected
