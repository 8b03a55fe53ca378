"""What is sent in which order: no frame comes before the inventory that it names."""

import threading
from collections.abc import Callable

from confluent_kafka import Consumer, TopicPartition
from tests.brokers.embedded import EmbeddedBroker
from tests.brokers.faults import ApiKey, Fault
from tests.simulator.orders import CONFIG, START_NS

from flyball_contracts.config import KafkaConfig
from flyball_contracts.kafka import consumer_settings
from flyball_contracts.topics import INVENTORY, TOPICS
from flyball_simulator import Fleet
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
