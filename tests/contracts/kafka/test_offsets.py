"""Where partitions begin and end, from a broker that does not always know."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from tests.brokers.embedded import EmbeddedBroker
from tests.brokers.faults import ApiKey, Fault

from flyball_contracts.kafka import Bounds, bounds, consumer_settings, ends

TOPIC = "places"
PLACES = [(TOPIC, 0), (TOPIC, 1)]


@pytest.fixture(name="broker")
def _broker() -> Iterator[EmbeddedBroker]:
    """Two messages in partition 0, of which the first was deleted, and none in partition 1."""
    with EmbeddedBroker({TOPIC: 2}) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for value in (b"a", b"b"):
            producer.produce(TOPIC, value, partition=0)
        assert producer.flush(10.0) == 0
        broker.delete_records(TOPIC, 0, 1)
        yield broker


@pytest.fixture(name="consumer")
def _consumer(broker: EmbeddedBroker) -> Iterator[Consumer]:
    consumer = Consumer(consumer_settings(broker.bootstrap, group="test", client_id="test"))
    yield consumer
    consumer.close()


def test_bounds_and_ends(consumer: Consumer) -> None:
    assert bounds(consumer, PLACES) == {PLACES[0]: Bounds(1, 2), PLACES[1]: Bounds(0, 0)}
    assert ends(consumer, PLACES, 5.0) == {PLACES[0]: 2, PLACES[1]: 0}
    assert bounds(consumer, []) == {} == ends(consumer, [], 5.0)


def test_a_broker_that_is_not_yet_the_leader_is_requested_again(broker: EmbeddedBroker, consumer: Consumer) -> None:
    refusals = [Fault.NOT_LEADER_OR_FOLLOWER, Fault.BROKER_NOT_AVAILABLE, Fault.REQUEST_TIMED_OUT]
    broker.push_request_errors(ApiKey.LIST_OFFSETS, refusals)
    assert bounds(consumer, PLACES)[PLACES[0]] == Bounds(1, 2)


def test_ends_leaves_out_what_is_not_known_now(broker: EmbeddedBroker, consumer: Consumer) -> None:
    broker.push_request_errors(ApiKey.LIST_OFFSETS, [Fault.NOT_LEADER_OR_FOLLOWER] * 100)
    assert ends(consumer, PLACES, 0.5) == {}


def test_patience_ends(consumer: Consumer) -> None:
    with pytest.raises(KafkaException):
        bounds(consumer, [("nobody-made-it", 0)], 0.5)


def test_who_may_not_ask_is_reported_at_once(broker: EmbeddedBroker, consumer: Consumer) -> None:
    broker.push_request_errors(ApiKey.LIST_OFFSETS, [Fault.TOPIC_AUTHORIZATION_FAILED])
    with pytest.raises(KafkaException, match="uthorization"):
        bounds(consumer, PLACES, 60.0)
