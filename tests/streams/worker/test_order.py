"""What a step leads to goes out in one order: what the lanes say, then the snapshots that include it, then offsets."""

import time
from collections.abc import Iterator
from itertools import chain
from types import SimpleNamespace

import msgspec
import pytest
from confluent_kafka import Producer
from faust.types import TP
from tests.brokers.embedded import EmbeddedBroker
from tests.brokers.faults import ApiKey, Fault
from tests.streams.engine.recorded import SMALL
from tests.streams.engine.scene import START_NS
from tests.streams.worker.rig import PARTITIONS, incoming

from flyball_contracts.codec import Message
from flyball_contracts.config import Config, KafkaConfig
from flyball_contracts.errors import TransportError
from flyball_contracts.kafka.topic_ids import TopicIds
from flyball_contracts.topics import EVENTS, TELEMETRY
from flyball_simulator import Fleet
from flyball_streams.engine import Incoming
from flyball_streams.engine.parameters import Parameters
from flyball_streams.worker.host import LaneHost
from flyball_streams.worker.tables import TableReader

TICKS = 12
PLACES = [TP(TELEMETRY.name, p) for p in range(PARTITIONS[TELEMETRY.name])]


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(PARTITIONS) as broker:
        yield broker


def send(broker: EmbeddedBroker, messages: list[Message]) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "partitioner": "murmur2_random"})
    for m in messages:
        producer.produce(m.topic, m.value, m.key, headers=[(name, value) for name, value in m.headers])
    assert producer.flush(10.0) == 0


def telemetry(fleet: Fleet) -> dict[TP, list[Incoming]]:
    """Telemetry of some ticks by partition, with the offsets that it has there."""
    batches: dict[TP, list[Incoming]] = {}
    for m in chain.from_iterable(fleet.tick(i) for i in range(TICKS)):
        if m.topic == TELEMETRY.name:
            batch = batches.setdefault(TP(m.topic, incoming(m).partition), [])
            batch.append(incoming(m)._replace(offset=len(batch)))
    return batches


def included(broker: EmbeddedBroker) -> int:
    """Messages of telemetry that some snapshot on the broker includes."""
    kafka = KafkaConfig(bootstrap=broker.bootstrap)
    reader, topics = TableReader(kafka, "test-reader", "test"), TopicIds(kafka, (TELEMETRY.name, EVENTS.name)).now()
    reader.start()
    found = [reader.snapshot("order:node", tp.partition, topics) for tp in PLACES]
    reader.close()
    assert all(s is not None for s in found)
    return sum(s.offsets[f"{TELEMETRY.name}/{s.partition}"] for s in found if s is not None)


def test_snapshots_wait_for_a_moment_of_rest(broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 100.0
    clock = SimpleNamespace(monotonic=lambda: now_s, time_ns=time.time_ns)
    monkeypatch.setattr("flyball_streams.worker.host.time", clock)
    fleet = Fleet(SMALL, START_NS)
    send(broker, fleet.messages_at_start())
    worker = msgspec.structs.replace(Parameters(), app="order", snapshot_every_s=10.0)
    host = LaneHost(Config(kafka=KafkaConfig(bootstrap=broker.bootstrap), worker=worker), PARTITIONS, "test-order")
    host.start()
    host.resume(PLACES)
    host.begin(dict.fromkeys(PLACES, 0))
    batches = telemetry(fleet)

    def step(third: int) -> None:
        host.step(
            [(tp, batch[third * len(batch) // 3 : (third + 1) * len(batch) // 3]) for tp, batch in batches.items()]
        )

    step(0)
    assert not host.rest(), "none is due"
    now_s += 11.0
    step(1)
    assert included(broker) == 0, "decisions go first"
    while host.rest():
        pass
    assert included(broker) == sum(2 * len(batch) // 3 for batch in batches.values())
    now_s += 21.0
    assert not host.rest(), "nothing was read since"
    step(2)
    assert included(broker) == sum(map(len, batches.values())), "who never rests is not waited for"
    host.close()


def test_no_snapshot_includes_what_the_broker_did_not_take(broker: EmbeddedBroker) -> None:
    fleet = Fleet(SMALL, START_NS)
    send(broker, fleet.messages_at_start())
    batches = telemetry(fleet)
    kafka = KafkaConfig(bootstrap=broker.bootstrap, client={"delivery.timeout.ms": "3000"})
    worker = msgspec.structs.replace(Parameters(), app="order", snapshot_every_s=0.001)
    host = LaneHost(Config(kafka=kafka, worker=worker), PARTITIONS, "test-order")
    host.start()
    host.resume(PLACES)
    host.begin(dict.fromkeys(PLACES, 0))
    assert included(broker) == 0
    broker.push_request_errors(ApiKey.PRODUCE, [Fault.TOPIC_AUTHORIZATION_FAILED])  # of one partition alone
    with pytest.raises(TransportError, match="not taken by the broker"):
        host.step(list(batches.items()))
    assert included(broker) == 0
    host.close()
