"""What is sent in which order: no frame comes before the inventory that it names."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.brokers.embedded import EmbeddedBroker
from tests.brokers.faults import ApiKey, Fault
from tests.simulator.orders import CONFIG, START_NS

from flyball_contracts.config import KafkaConfig
from flyball_contracts.kafka import consumer_settings, open_producer
from flyball_contracts.topics import INVENTORY, TOPICS
from flyball_simulator import Fleet
from flyball_simulator.service import sender as sender_module
from flyball_simulator.service.sender import Sender


def test_frames_wait_for_the_inventories_that_they_name(embedded_broker: Callable[..., EmbeddedBroker]) -> None:
    broker = embedded_broker(dict.fromkeys(TOPICS, 1))
    sender = Sender(KafkaConfig(bootstrap=broker.bootstrap), CONFIG.cell, START_NS, threading.Event())
    reader = Consumer(consumer_settings(broker.bootstrap, group="test", client_id="test"))
    fleet, place = Fleet(CONFIG, START_NS), TopicPartition(INVENTORY.name, 0)
    inventories = [m for m in fleet.messages_at_start() if m.topic == INVENTORY.name]
    broker.push_request_errors(ApiKey.PRODUCE, [Fault.NOT_LEADER_OR_FOLLOWER] * 4)  # it takes some attempts
    sender.send(inventories)
    sender.send(fleet.tick(0))
    assert reader.get_watermark_offsets(place, 10.0, cached=False) == (0, len(inventories))
    reader.close()
    sender.close()


def test_what_the_broker_refuses_for_good_holds_no_tick_up(embedded_broker: Callable[..., EmbeddedBroker]) -> None:
    """Else a fleet that starts again sends all ticks since a second time."""
    broker = embedded_broker(dict.fromkeys(TOPICS, 1))
    acknowledged: list[int] = []
    kafka = KafkaConfig(bootstrap=broker.bootstrap)
    sender = Sender(kafka, CONFIG.cell, START_NS, threading.Event(), acknowledged.append)
    fleet = Fleet(CONFIG, START_NS)
    sender.send(fleet.messages_at_start(), -1)
    broker.push_request_errors(ApiKey.PRODUCE, [Fault.MESSAGE_TOO_LARGE])
    for index in range(3):
        sender.send(fleet.tick(index), index)
    sender.close()
    assert sender.report.failed > 0
    assert acknowledged == [-1, 0, 1, 2]


def test_messages_wait_for_a_broker_that_is_away_as_long_as_it_takes(
    embedded_broker: Callable[..., EmbeddedBroker], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[dict[str, Any]] = []

    def open_it(settings: dict[str, Any], *arguments: Any, **options: Any) -> Producer:
        opened.append(settings)
        return open_producer(settings, *arguments, **options)

    monkeypatch.setattr(sender_module, "open_producer", open_it)
    kafka = KafkaConfig(bootstrap=embedded_broker(dict.fromkeys(TOPICS, 1)).bootstrap)
    Sender(kafka, CONFIG.cell, START_NS, threading.Event()).close()
    assert [settings["delivery.timeout.ms"] for settings in opened] == [0]  # librdkafka: for ever
