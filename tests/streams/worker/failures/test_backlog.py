"""In a backlog, partitions that are far ahead of the slowest wait for it: what lanes say in front of it is kept."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from faust.types import TP
from tests.brokers.embedded import EmbeddedBroker
from tests.streams.engine.scene import PERIOD_NS, START_NS, Agent, incoming_records, inventory, tick
from tests.streams.worker.rig import PARTITIONS, wait_until

from flyball_contracts.codec import decode_message
from flyball_contracts.config import Config, KafkaConfig
from flyball_contracts.kafka import consumer_settings
from flyball_contracts.records import NodeEvent, ProposalTick
from flyball_contracts.topics import EVENTS, PROPOSALS, TELEMETRY
from flyball_streams.engine.parameters import Parameters
from flyball_streams.worker.fetch import Fetch
from flyball_streams.worker.host import BACKLOG, LaneHost

FIRST, SECOND = TP(TELEMETRY.name, 0), TP(TELEMETRY.name, 1)
EVENTS_OF_FIRST = TP(EVENTS.name, 0)


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(PARTITIONS) as broker:
        yield broker


WORKER = msgspec.structs.replace(Parameters(), app="backlog")


@pytest.fixture
def host(broker: EmbeddedBroker) -> Iterator[LaneHost]:
    """The lanes of two partitions, from their start."""
    host = LaneHost(Config(kafka=KafkaConfig(bootstrap=broker.bootstrap), worker=WORKER), PARTITIONS, "test")
    host.start()
    host.resume([FIRST, SECOND])
    host.begin({FIRST: 0, SECOND: 0})
    yield host
    host.close()


def test_who_is_far_ahead_of_one_with_a_backlog_waits(host: LaneHost) -> None:
    read = {FIRST: WORKER.lane_lateness_ticks(PERIOD_NS) + 30, SECOND: 20}
    for place, ticks in read.items():
        agent = Agent(inventory(f"node-{place.partition}"))
        host.directory.apply(agent.inventory)
        frames = [f._replace(partition=place.partition) for i in range(ticks) for f in agent.frames(i, schemas=[1])]
        host.step([(place, [f._replace(offset=i) for i, f in enumerate(frames)])])
    much = BACKLOG + 1
    assert host.ahead({FIRST: much, SECOND: much}) == {FIRST}
    assert host.ahead({FIRST: 0, SECOND: much}) == {FIRST}
    assert host.ahead({FIRST: much, SECOND: BACKLOG}) == set()


def test_a_step_through_a_backlog_is_progress_with_each_tick(host: LaneHost) -> None:
    agent, ticks = Agent(inventory("node-0")), WORKER.lane_lateness_ticks(PERIOD_NS) + 60
    host.directory.apply(agent.inventory)
    frames = [f._replace(partition=FIRST.partition) for i in range(ticks) for f in agent.frames(i, schemas=[1])]
    before = host.progress()
    host.step([(FIRST, [f._replace(offset=i) for i, f in enumerate(frames)])])
    closed = host.stats()[f"node/{FIRST.partition}"].ticks
    assert closed > 50
    assert host.progress() - before == closed + 1


def test_an_event_counts_at_its_tick_though_its_batch_comes_after_those_of_frames(
    host: LaneHost, broker: EmbeddedBroker
) -> None:
    agent = Agent(inventory("node-0"))
    host.directory.apply(agent.inventory)
    host.resume([FIRST, SECOND, EVENTS_OF_FIRST])
    host.begin({EVENTS_OF_FIRST: 0})
    frames = [f._replace(partition=0) for i in range(20) for f in agent.frames(i, schemas=[1])]
    happened = NodeEvent(
        id="hot", node="node-0", device="node-0/0", kind="throttle", severity="warning",
        time_ns=START_NS + 3 * PERIOD_NS,
    )  # fmt: skip
    events = [m._replace(partition=0) for m in incoming_records(happened)]
    host.step([(FIRST, [f._replace(offset=i) for i, f in enumerate(frames)]), (EVENTS_OF_FIRST, events)])
    host.close()
    consumer = Consumer(consumer_settings(broker.bootstrap, group="test", client_id="test"))
    consumer.assign([TopicPartition(PROPOSALS.name, p, 0) for p in range(PARTITIONS[PROPOSALS.name])])
    found: list[ProposalTick] = []

    def published() -> bool:
        found.extend(proposals(consumer))
        return bool(found)

    wait_until(published, "the symptom is published")
    consumer.close()
    assert [(p.tick.index, [s.record for s in p.symptoms]) for p in found] == [(tick(3).index, ["hot"])]


def proposals(consumer: Consumer) -> list[ProposalTick]:
    """Messages with symptoms that have come."""
    messages: list[Any] = consumer.consume(100, 0.5)
    records = [decode_message(PROPOSALS.name, m.value(), m.headers()) for m in messages]
    return [record for record in records if isinstance(record, ProposalTick) and record.symptoms]


def test_cells_that_ended_hold_nobody(host: LaneHost) -> None:
    late = WORKER.lane_lateness_ticks(PERIOD_NS)
    ends = {FIRST: {"gone": 20, "there": 4 * late + 60}, SECOND: {"gone": 2 * late + 50, "there": 3 * late + 50}}
    for place, cells in ends.items():
        agents = {cell: Agent(inventory(f"{cell}-{place.partition}", cell=cell)) for cell in cells}
        for agent in agents.values():
            host.directory.apply(agent.inventory)
        frames = [
            frame._replace(partition=place.partition)
            for i in range(max(cells.values()))
            for cell, agent in agents.items()
            if i < cells[cell]
            for frame in agent.frames(i, schemas=[1])
        ]
        host.step([(place, [frame._replace(offset=i) for i, frame in enumerate(frames)])])
    much = BACKLOG + 1
    assert host.ahead({FIRST: much, SECOND: much}) == {FIRST}, "it is ahead in the cell that is there"
    assert host.ahead({FIRST: much, SECOND: 0}) == set(), "the cell that is gone holds nobody"


def test_what_is_held_is_fetched_when_it_is_let_go(broker: EmbeddedBroker) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for i in range(20):
        for place in (FIRST, SECOND):
            producer.produce(place.topic, str(i).encode(), partition=place.partition)
    assert producer.flush(10.0) == 0
    fetch, found = Fetch(KafkaConfig(bootstrap=broker.bootstrap), "test", "test"), dict[TP, list[int]]()

    def take() -> dict[TP, list[int]]:
        for place, batch in fetch.take(lambda: None).batches.items():
            found.setdefault(place, []).extend(m.offset for m in batch)
        return found

    fetch.begin({FIRST: 0, SECOND: 0})
    fetch.hold({FIRST})
    wait_until(lambda: len(take().get(SECOND, ())) == 20, "the other partition is read")
    assert FIRST not in found
    fetch.hold(set())
    wait_until(lambda: len(take().get(FIRST, ())) == 20, "what was held is read")
    assert found == {place: list(range(20)) for place in (FIRST, SECOND)}
    fetch.close()
