"""What a restart brings: things said twice, and events read before the telemetry of their time."""

from typing import Any

from tests.streams.worker.rig import PARTITIONS, Simulated, incoming

from flyball_contracts.codec import Message, decode_message
from flyball_contracts.config import WorkerConfig
from flyball_contracts.records import Demand, Tick
from flyball_contracts.topics import DECISIONS, EVENTS
from flyball_streams.engine import Engine
from flyball_streams.engine.workload.cell import merge

TICKS = 40


def demand(source: str, work: float) -> Demand:
    tick = Tick(index=7, period_ns=1_000_000_000)
    return Demand(workload="w", cell="c", source=source, tick=tick, replicas=1, ready=1, devices=1, work_rate=work)


def test_demand_said_again_counts_once() -> None:
    one, two = demand("node/0", 3.0), demand("node/1", 4.0)
    assert merge([one, two, one, two]) == merge([one, two])
    assert merge([one, two])["w"].work_rate == 7.0


def decisions(batches: list[list[Message]]) -> list[Any]:
    engine = Engine(WorkerConfig(), PARTITIONS)
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
