"""The feed against the embedded broker: what arrives, what cannot be read, and a broker that goes away."""

import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

import pytest
from tests.brokers.embedded import EmbeddedBroker
from tests.dashboard.scenes import scene

from flyball_contracts.codec import Message
from flyball_contracts.config import KafkaConfig
from flyball_contracts.deadletter import dead_letter
from flyball_contracts.topics import DECISIONS, INCIDENTS, INVENTORY, TOPICS
from flyball_streams.dashboard.feed import TAIL, Feed
from flyball_streams.dashboard.state.fleet import FleetView
from flyball_streams.engine.cell.incidents import manager
from flyball_streams.engine.cell.incidents.nodes import quarantine

PARTITIONS = {topic.name: 2 for topic in TOPICS.values()}
Start = Callable[..., EmbeddedBroker]


@contextmanager
def reading(bootstrap: str) -> Generator[Feed]:
    feed, stop = Feed(FleetView(), KafkaConfig(bootstrap=bootstrap)), threading.Event()
    thread = threading.Thread(target=feed.run, args=(stop,))
    thread.start()
    try:
        yield feed
    finally:
        stop.set()
        thread.join(20)
        assert not thread.is_alive()


def wait_for(what: Callable[[], bool], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)


def test_it_reads_back_to_the_last_repeat_of_a_cordon_while_200_incidents_are_open() -> None:
    repeats = quarantine.REPEAT_S / manager.REPEAT_S
    assert TAIL[INCIDENTS.name] * INCIDENTS.partitions >= 200 * repeats


def test_reads_everything_that_was_there_before_and_what_comes_later(embedded_broker: Start) -> None:
    broker = embedded_broker(PARTITIONS)
    items = scene.scene(scene.Fleet(nodes=4))
    late = scene.decisions()[0]
    scene.publish(broker.bootstrap, [scene.message_of(item) for item in items if item != late])
    with reading(broker.bootstrap) as feed:
        wait_for(lambda: feed.view.applied == len(items) - 1)
        assert feed.link.connected
        assert feed.link.partitions == 2 * len(TAIL)
        scene.publish(broker.bootstrap, [scene.message_of(late)])
        wait_for(lambda: late.id in feed.view.journal.decisions)


def test_bad_messages_are_counted_and_stop_nothing(embedded_broker: Start) -> None:
    broker = embedded_broker(PARTITIONS)
    good = scene.message_of(scene.decisions()[0])
    bad = [
        Message(DECISIONS.name, b"k", b"\xff not json", list(good.headers)),
        Message(DECISIONS.name, b"k", good.value, []),
        Message("flyball.telemetry.v1", b"n", b"\x00\x01", []),
    ]
    dead = dead_letter(
        topic="t",
        partition=0,
        offset=7,
        key=b"k",
        value=b"v",
        headers=[],
        stage="worker",
        error=ValueError("odd"),
    )
    scene.publish(broker.bootstrap, [*bad, dead, good])
    with reading(broker.bootstrap) as feed:
        wait_for(lambda: feed.view.applied == 1 and feed.view.undecodable == 3 and feed.view.dead_letters == 1)


def test_a_tombstone_takes_a_node_away(embedded_broker: Start) -> None:
    broker = embedded_broker({**PARTITIONS, INVENTORY.name: 1})
    fleet = scene.Fleet(nodes=2)
    scene.publish(broker.bootstrap, [scene.message_of(item) for item in scene.inventories(fleet)])
    with reading(broker.bootstrap) as feed:
        wait_for(lambda: len(feed.view.nodes) == 3)
        tombstone = Message(INVENTORY.name, scene.node_name(0).encode(), b"", [])._replace(value=None)  # type: ignore[arg-type]
        scene.publish(broker.bootstrap, [tombstone])
        wait_for(lambda: len(feed.view.nodes) == 2)
        assert feed.view.undecodable == 0


def test_a_lost_broker_is_reported_and_waited_for(embedded_broker: Start, caplog: pytest.LogCaptureFixture) -> None:
    broker = embedded_broker(PARTITIONS)
    with reading(broker.bootstrap) as feed:
        wait_for(lambda: feed.link.connected)
        broker.set_down()
        wait_for(lambda: not feed.link.connected)
        assert feed.link.error
        broker.set_up()
        wait_for(lambda: feed.link.connected)
        decision = scene.decisions()[0]
        scene.publish(broker.bootstrap, [scene.message_of(decision)])
        wait_for(lambda: decision.id in feed.view.journal.decisions)
    assert sum("no broker answers" in record.getMessage() for record in caplog.records) == 1


def test_no_broker_at_all() -> None:
    with reading("127.0.0.1:1") as feed:
        wait_for(lambda: feed.link.tried)
        assert not feed.link.connected
        assert "127.0.0.1:1" in feed.link.bootstrap
