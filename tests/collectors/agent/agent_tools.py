"""A clock that only waiting moves, and a reader of what an agent sent."""

import time
from collections.abc import Callable
from typing import NamedTuple, cast

import pytest
from confluent_kafka import Consumer
from tests.brokers.embedded import EmbeddedBroker

from flyball_collectors.agent.ticker import Clock
from flyball_contracts.codec import decode_message
from flyball_contracts.frame import Frame
from flyball_contracts.kafka import consumer_settings
from flyball_contracts.records import Inventory, NodeEvent
from flyball_contracts.topics import EVENTS, INVENTORY, TELEMETRY

S = 1_000_000_000
START_NS = 1_700_000_000 * S
TOPICS = {TELEMETRY.name: 1, EVENTS.name: 1, INVENTORY.name: 1}
StartBroker = Callable[..., EmbeddedBroker]


class FakeTime:
    """A clock that only waiting moves."""

    def __init__(self) -> None:
        self.now_ns = START_NS + 1
        self.clock = Clock(lambda: self.now_ns, lambda: self.now_ns)

    def wait(self, seconds: float) -> bool:
        self.now_ns += round(seconds * S)
        return False


class Received(NamedTuple):
    frames: list[Frame]
    events: list[NodeEvent]
    inventories: list[Inventory]


def receive(bootstrap: str, count: int) -> Received:
    """The first `count` messages of the agent's topics, whatever they are."""
    consumer = Consumer(consumer_settings(bootstrap, group="test", client_id="test"))
    consumer.subscribe(list(TOPICS))
    received = Received([], [], [])
    deadline = time.monotonic() + 20
    while sum(len(part) for part in received) < count and time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is None or message.error():
            continue
        headers = cast("list[tuple[str, bytes | None]] | None", message.headers())
        record = decode_message(str(message.topic()), message.value(), headers)
        assert message.key() == b"n1"
        match record:
            case Frame():
                received.frames.append(record)
            case NodeEvent():
                received.events.append(record)
            case Inventory():
                received.inventories.append(record)
            case _:
                pytest.fail(f"unexpected {record}")
    consumer.close()
    assert sum(len(part) for part in received) == count
    return received
