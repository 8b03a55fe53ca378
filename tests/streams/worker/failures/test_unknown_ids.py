"""Ids of topics that the broker does not say at first: lanes find their snapshots by them, so they ask again."""

import logging
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicCollection
from faust.types import TP
from tests.brokers.embedded import EmbeddedBroker
from tests.streams.engine.recorded import SMALL
from tests.streams.engine.scene import START_NS
from tests.streams.worker.rig import PARTITIONS, incoming

from flyball_contracts.codec import decode_record
from flyball_contracts.config import Config, KafkaConfig
from flyball_contracts.errors import Stopped, TransportError
from flyball_contracts.kafka import open_admin, topic_ids
from flyball_contracts.kafka.topic_ids import TopicIds
from flyball_contracts.topics import TELEMETRY
from flyball_simulator import Fleet
from flyball_streams.engine import Incoming
from flyball_streams.engine.parameters import Parameters
from flyball_streams.worker.host import LaneHost

PLACE = TP(TELEMETRY.name, 0)
TICKS = 12


class FailingAdmin:
    """An admin client whose first answers are errors, and whose next ones know no ids."""

    def __init__(self, admin: Any, failures: int, without_ids: int) -> None:
        self._admin, self._failures, self._without_ids = admin, failures, without_ids

    def describe_topics(self, names: TopicCollection, request_timeout: float) -> Mapping[str, Future[Any]]:
        found: Mapping[str, Future[Any]] = self._admin.describe_topics(names, request_timeout=request_timeout)
        if self._failures:
            self._failures -= 1
            return {name: failed() for name in found}
        if self._without_ids:
            self._without_ids -= 1
            return {name: without_id() for name in found}
        return found


def failed() -> Future[Any]:
    future: Future[Any] = Future()
    future.set_exception(KafkaException(KafkaError(KafkaError._TIMED_OUT)))
    return future


def without_id() -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(SimpleNamespace(topic_id=None))
    return future


@pytest.fixture
def kafka() -> Iterator[KafkaConfig]:
    with EmbeddedBroker(PARTITIONS) as broker:
        yield KafkaConfig(bootstrap=broker.bootstrap)


def let_fail(monkeypatch: pytest.MonkeyPatch, failures: int = 0, without_ids: int = 0) -> None:
    """Let the admin clients that are opened from now on fail."""

    def open_failing(settings: Mapping[str, Any], log: logging.Logger, who: str, **more: Any) -> FailingAdmin:
        return FailingAdmin(open_admin(settings, log, who, **more), failures, without_ids)

    monkeypatch.setattr(topic_ids, "open_admin", open_failing)
    monkeypatch.setattr(topic_ids, "RETRY_S", 0.01, raising=False)


def lanes(kafka: KafkaConfig) -> LaneHost:
    host = LaneHost(Config(kafka=kafka, worker=msgspec.structs.replace(Parameters(), app="ids")), PARTITIONS, "test")
    host.start()
    return host


def run_and_save(kafka: KafkaConfig) -> int:
    """Send some telemetry, step a lane through it, and publish its snapshot; return its offset."""
    fleet, batch = Fleet(SMALL, START_NS), list[Incoming]()
    for i in range(TICKS):
        taken = [incoming(m) for m in fleet.tick(i) if m.topic == TELEMETRY.name]
        batch += [m for m in taken if m.partition == PLACE.partition]
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for m in batch:
        producer.produce(m.topic, m.value, partition=m.partition)
    assert producer.flush(10.0) == 0
    host = lanes(kafka)
    for record in fleet.messages_at_start():
        host.directory.apply(decode_record(record.topic, record.value, record.headers))
    host.resume([PLACE])
    host.begin({PLACE: 0})
    host.step([(PLACE, [m._replace(offset=i) for i, m in enumerate(batch)])])
    host.save()
    host.close()
    return len(batch)


def test_lanes_restore_their_snapshot_though_the_broker_answered_late(
    kafka: KafkaConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = run_and_save(kafka)
    let_fail(monkeypatch, failures=2)
    host = lanes(kafka)
    assert done
    assert host.resume([PLACE]) == {PLACE: done}
    host.close()


def test_without_an_answer_no_lane_starts_from_nothing(kafka: KafkaConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    let_fail(monkeypatch, failures=1000)
    monkeypatch.setattr(topic_ids, "PATIENCE_S", 0.1, raising=False)
    host = lanes(kafka)
    with pytest.raises(TransportError, match=rf"{TELEMETRY.name}.* not known: .*check that the broker answers"):
        host.resume([PLACE])
    assert not host.lanes
    host.close()


def test_a_broker_that_has_no_ids_is_not_asked_again_and_may_get_them(
    kafka: KafkaConfig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    let_fail(monkeypatch, without_ids=1)
    host = lanes(kafka)
    with caplog.at_level(logging.INFO, "flyball_contracts.kafka"):
        host.resume([PLACE])
        host.begin({PLACE: 0})
        kept = host.lanes["node", PLACE.partition]
        assert host.resume([PLACE]) == {PLACE: 0}
    assert host.ids.now()
    assert host.lanes["node", PLACE.partition] is kept
    assert "asking again" not in caplog.text
    assert "made again" not in caplog.text
    host.close()


def test_who_stops_does_not_wait_for_ids(kafka: KafkaConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    let_fail(monkeypatch, failures=1000)
    ids = TopicIds(kafka, [TELEMETRY.name])
    ids.close()
    with pytest.raises(Stopped):
        ids.wait_known()
