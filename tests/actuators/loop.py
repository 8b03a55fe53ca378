"""A running actuator on a broker, what goes in, and what comes out."""

import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from tests.actuators.samples import NOW

from flyball_actuators.drivers import Answer
from flyball_actuators.report import ActuatorReport
from flyball_actuators.service import run_actuator
from flyball_contracts.codec import Message, decode_message, record_message
from flyball_contracts.config import ActuatorConfig, Config, KafkaConfig
from flyball_contracts.kafka import consumer_settings, producer_settings
from flyball_contracts.records import AnyDecision, Outcome, Record
from flyball_contracts.topics import DECISIONS, OUTCOMES, TOPICS

PARTITIONS = {name: 2 for name in TOPICS}
DEADLINE_S = 40.0


class FileDriver:
    """Not repeatable; each call appends the decision's id to a file."""

    name = "file"
    repeatable = False

    def __init__(self, effects: Path) -> None:
        self._effects = effects

    def apply(self, decision: AnyDecision) -> Answer:
        with self._effects.open("a") as file:
            file.write(f"{decision.id}\n")
        return Answer("done", f"applied {decision.id}")

    def effects(self) -> list[str]:
        return self._effects.read_text().split() if self._effects.exists() else []


def config_for(bootstrap: str, group: str, **actuator: object) -> Config:
    settings = ActuatorConfig(group=group, **actuator)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    return Config(kafka=KafkaConfig(bootstrap=bootstrap), actuator=settings)


def publish(bootstrap: str, *records: Record | Message) -> None:
    """Send and wait for the acknowledgement."""
    quick = {"enable.idempotence": "false"}  # the mock takes half a second to give out a producer id
    producer = Producer(producer_settings(bootstrap, client_id="test", linger_ms=0, extra=quick))
    for record in records:
        message = record_message(record, "/test") if isinstance(record, Record) else record
        producer.produce(message.topic, message.value, message.key, headers=[*message.headers])
    assert producer.flush(DEADLINE_S) == 0


def read_all(bootstrap: str, topic: str) -> list[tuple[bytes | None, list[tuple[str, bytes]]]]:
    """Values and headers of a topic, one partition after the other."""
    consumer = Consumer(consumer_settings(bootstrap, group="test-reader", client_id="test"))
    found: list[tuple[bytes | None, list[tuple[str, bytes]]]] = []
    try:
        for partition in range(PARTITIONS[topic]):
            part = TopicPartition(topic, partition, 0)
            _, end = consumer.get_watermark_offsets(part, DEADLINE_S, cached=False)
            consumer.assign([part])
            count = 0
            until = time.monotonic() + DEADLINE_S
            while count < end and time.monotonic() < until:
                for message in consumer.consume(100, 0.2):
                    assert message.error() is None
                    found.append((message.value(), message.headers() or []))  # type: ignore[arg-type]  # pyright: ignore
                    count += 1
            assert count >= end
    finally:
        consumer.close()
    return found


def outcomes(bootstrap: str) -> list[Outcome]:
    records = [decode_message(OUTCOMES.name, value, headers) for value, headers in read_all(bootstrap, OUTCOMES.name)]
    return [record for record in records if isinstance(record, Outcome)]


def said(bootstrap: str, decision: str) -> list[str]:
    """Statuses of one decision in order, with the code of a refusal."""
    return [f"{o.status} {o.code}".strip() for o in outcomes(bootstrap) if o.decision == decision]


def wait_for(true: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + DEADLINE_S
    while not true():
        assert time.monotonic() < until, f"waited in vain for {what}"
        time.sleep(0.05)


def committed(bootstrap: str, group: str) -> int:
    """Sum of the group's committed offsets of the decisions."""
    consumer = Consumer(consumer_settings(bootstrap, group=group, client_id="test"))
    try:
        parts = [TopicPartition(DECISIONS.name, p) for p in range(PARTITIONS[DECISIONS.name])]
        return sum(max(0, part.offset) for part in consumer.committed(parts, DEADLINE_S))
    finally:
        consumer.close()


class Running:
    """An actuator in a thread; ``error`` is what ended it, ``report`` what it returned."""

    def __init__(self, config: Config, driver: FileDriver | None) -> None:
        self.report: ActuatorReport | None = None
        self.error: BaseException | None = None
        self.stop = threading.Event()
        self.ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(config, driver))
        self._thread.start()

    def _run(self, config: Config, driver: FileDriver | None) -> None:
        try:
            self.report = run_actuator(config, stop=self.stop, ready=self.ready.set, driver=driver, clock=lambda: NOW)
        except BaseException as error:
            self.error = error
            self.ready.set()

    def join(self) -> None:
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive(), "the actuator did not stop"


@contextmanager
def running(config: Config, driver: FileDriver | None = None) -> Generator[Running]:
    actuator = Running(config, driver)
    try:
        assert actuator.ready.wait(DEADLINE_S), "the actuator was not ready"
        yield actuator
    finally:
        actuator.stop.set()
        actuator.join()
    if actuator.error is not None:
        raise actuator.error
