"""A producer that is replaced before it has reported everything leaves no record of the spool behind."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from flyball_collectors.agent.delivery import outbox as module
from flyball_collectors.agent.delivery.outbox import Outbox
from flyball_collectors.spool import Spool, pack
from flyball_contracts.codec import Message
from flyball_contracts.config import KafkaConfig
from flyball_contracts.topics import EVENTS

KAFKA = KafkaConfig(bootstrap="127.0.0.1:1")
OLD, NEW = (Message(EVENTS.name, b"n1", value, []) for value in (b"old", b"new"))


class SilentProducer:
    """A producer that reports deliveries only when it is told to."""

    def __init__(self, on_error: Callable[[KafkaError], None]) -> None:
        self.on_error = on_error
        self.taken: list[bytes] = []
        self.reports: list[Callable[[KafkaError | None, Any], None] | None] = []
        self.fatal = False

    def __len__(self) -> int:
        return len(self.reports)

    def produce(self, topic: str, value: bytes, key: bytes, *, headers: object, on_delivery: Any) -> None:
        self.taken.append(value)
        self.reports.append(on_delivery)

    def poll(self, wait_s: float) -> None:
        if self.fatal:
            self.fatal = False
            raise KafkaException(KafkaError(KafkaError._FATAL, "over", fatal=True))

    def flush(self, wait_s: float) -> None:
        """Report nothing, as within a second where a long queue was purged."""

    def purge(self, **options: bool) -> None:
        """Report nothing."""

    def report(self, error: KafkaError | None = None) -> None:
        """Report all messages that were taken."""
        reports, self.reports = self.reports, []
        for one in reports:
            if one is not None:
                one(error, self)

    def topic(self) -> str:
        return EVENTS.name


class Scene:
    """An outbox with one record in its spool, and its producers."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.producers: list[SilentProducer] = []
        self.now_s = 0.0
        self.spool = Spool(folder / "spool", 1 << 20)
        self.spool.append(pack(OLD), 1)
        monkeypatch.setattr(module, "open_producer", self._open)
        self.box = Outbox(KAFKA, client_id="test", queue_bytes=1 << 20, spool=self.spool, monotonic=lambda: self.now_s)

    def _open(self, settings: dict[str, Any], *others: object, **options: object) -> SilentProducer:
        self.producers.append(SilentProducer(settings["error_cb"]))
        return self.producers[-1]

    def switch(self) -> None:
        """Use another connection."""
        self.box.switch_to(self.box.prepare(KAFKA))

    def restart(self) -> None:
        """Let the producer end by a fatal error, and send after that."""
        self.producers[-1].fatal = True
        self.now_s += 10.0
        self.box.poll()
        self.box.send(NEW)

    @property
    def balance(self) -> int:
        """What is not accounted for."""
        box = self.box
        return box.sent + box.carried - box.delivered - box.dropped - box.waiting - box.spooled


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    scene = Scene(tmp_path, monkeypatch)
    yield scene
    scene.spool.close()


@pytest.mark.parametrize("replace", [Scene.switch, Scene.restart])
def test_a_record_without_a_report_is_sent_by_the_next_producer(scene: Scene, replace: Callable[[Scene], None]) -> None:
    scene.box.poll()
    assert scene.producers[0].taken == [b"old"]
    replace(scene)
    scene.box.poll()
    second = scene.producers[1]
    assert b"old" in second.taken
    second.report()
    assert scene.box.spooled == 0
    assert scene.balance == 0


def test_a_record_without_a_report_is_the_probe_where_no_broker_answers(scene: Scene) -> None:
    scene.box.poll()
    scene.restart()
    second = scene.producers[1]
    no_broker = KafkaError(KafkaError._ALL_BROKERS_DOWN)
    second.on_error(no_broker)
    second.report(no_broker)
    second.taken.clear()
    scene.box.poll()
    assert second.taken == [b"old"]


@pytest.mark.parametrize("late", [None, KafkaError._PURGE_QUEUE, KafkaError.MSG_SIZE_TOO_LARGE])
def test_a_report_that_comes_late_is_ignored(scene: Scene, late: int | None) -> None:
    scene.box.poll()
    scene.switch()
    scene.producers[0].report(None if late is None else KafkaError(late))
    assert (scene.box.spooled, scene.box.delivered, scene.box.dropped) == (1, 0, 0)
    scene.box.poll()
    scene.producers[1].report()
    assert scene.balance == 0


def test_messages_of_which_nobody_will_report_are_counted(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    scene.box.poll()
    scene.box.send(NEW)
    scene.switch()
    assert scene.box.dropped == 1
    assert scene.box.spooled == 1
    assert "producer was replaced" in caplog.text
