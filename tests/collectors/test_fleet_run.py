"""The simulated fleet on a broker: sending, pacing, and obeying decisions that are done."""

import math
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from flyball_collectors.fleet import Fleet, FleetReport, run_fleet
from flyball_contracts.codec import Message, decode_message, record_message
from flyball_contracts.config import FleetConfig, KafkaConfig
from flyball_contracts.errors import TransportError
from flyball_contracts.frame import Frame
from flyball_contracts.kafka import consumer_settings, producer_settings
from flyball_contracts.records import Decision, Inventory, Outcome, Preempt, Record, Scale
from flyball_contracts.records.outcomes import OutcomeStatus
from flyball_contracts.topics import DECISIONS, INVENTORY, OUTCOMES, TELEMETRY, TOPICS
from flyball_streams.broker import EmbeddedBroker

START_NS = 1_750_000_000_000_000_000
CONFIG = FleetConfig()
COUNTS = {name: 2 for name in TOPICS}


@pytest.fixture
def kafka(embedded_broker: Callable[..., EmbeddedBroker]) -> KafkaConfig:
    return KafkaConfig(bootstrap=embedded_broker(COUNTS).bootstrap)


@contextmanager
def reading(kafka: KafkaConfig, topic: str) -> Generator[Consumer]:
    consumer = Consumer(consumer_settings(kafka.bootstrap, group=f"test-{topic}", client_id="test"))
    try:
        consumer.assign([TopicPartition(topic, p, 0) for p in range(COUNTS[topic])])
        yield consumer
    finally:
        consumer.close()


def read(consumer: Consumer, enough: Callable[[list[object]], bool], limit_s: float = 20.0) -> list[object]:
    """Records until there are enough of them."""
    found: list[object] = []
    deadline = time.monotonic() + limit_s
    while not enough(found):
        assert time.monotonic() < deadline, f"only {len(found)} records within {limit_s} s"
        for message in consumer.consume(500, timeout=0.2):
            assert message.error() is None
            headers = message.headers()
            assert headers is None or isinstance(headers, list)
            found.append(decode_message(message.topic() or "", message.value(), headers))  # type: ignore[arg-type]
    return found


def test_all_that_is_sent_arrives(kafka: KafkaConfig) -> None:
    report = run_fleet(CONFIG, kafka, stop=threading.Event(), start_ns=START_NS, speed=math.inf, ticks=5)
    fleet = Fleet(CONFIG, START_NS)
    sent = [*fleet.messages_at_start(), *(m for i in range(5) for m in fleet.tick(i))]
    assert report == FleetReport(
        START_NS, ticks=5, messages=len(sent), sent_bytes=sum(len(m.value) for m in sent), late_ticks=report.late_ticks
    )
    with reading(kafka, TELEMETRY.name) as consumer:
        frames = read(consumer, lambda found: len(found) >= 5 * 24 * 3)
    assert len({(f.node, f.seq) for f in frames if isinstance(f, Frame)}) == len(frames) == 5 * 24 * 3


def test_it_stops_in_the_middle_of_a_wait(kafka: KafkaConfig) -> None:
    stop = threading.Event()
    reports: list[FleetReport] = []

    def work() -> None:
        reports.append(run_fleet(CONFIG, kafka, stop=stop, start_ns=START_NS, speed=1e-6))

    thread = threading.Thread(target=work)
    thread.start()
    with reading(kafka, TELEMETRY.name) as consumer:
        read(consumer, lambda found: len(found) >= 24 * 3)
    stop.set()
    thread.join(20)
    assert not thread.is_alive()
    assert reports[0].ticks == 1
    assert reports[0].failed == 0


def test_no_broker_is_said_clearly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flyball_collectors.fleet.run._CONNECT_S", 0.3)
    with pytest.raises(TransportError, match=r"no broker answers at 127.0.0.1:1 .* check kafka.bootstrap"):
        run_fleet(CONFIG, KafkaConfig(bootstrap="127.0.0.1:1"), stop=threading.Event(), start_ns=START_NS, ticks=1)


def test_a_speed_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="speed is 0"):
        run_fleet(CONFIG, KafkaConfig(), stop=threading.Event(), start_ns=START_NS, speed=0)


def outcome(decision: Decision, status: OutcomeStatus) -> Outcome:
    return Outcome(
        id=f"{decision.id}-{status}",
        decision=decision.id,
        type="Scale" if isinstance(decision, Scale) else "Preempt",
        target=decision.target,
        cell=decision.cell,
        workload=decision.workload,
        time_ns=START_NS,
        status=status,
        mode="live",
        driver="test",
    )


def test_decisions_that_are_done_are_obeyed(kafka: KafkaConfig) -> None:
    def preempt(name: str, workload: str, replicas: int, cell: str = "fleet") -> Preempt:
        return Preempt(
            id=name,
            target=workload,
            workload=workload,
            cell=cell,
            replicas=replicas,
            replicas_before=8,
            time_ns=START_NS,
            expires_ns=START_NS + 1,
            reason="",
            confidence=1.0,
            policy="test",
        )

    done = preempt("done", "asr-batch", 3)
    early = preempt("early", "data-notebooks", 5)  # its outcome overtakes it
    refused = preempt("refused", "synth-data", 0)
    elsewhere = preempt("elsewhere", "synth-data", 0, cell="other")
    gang = Scale(
        id="gang",
        target="g",
        workload="rank-train",
        cell="fleet",
        replicas=3,
        replicas_before=4,
        time_ns=START_NS,
        expires_ns=START_NS + 1,
        reason="",
        confidence=1.0,
        policy="test",
    )
    said: list[Record] = [
        done,
        outcome(done, "accepted"),
        outcome(done, "done"),
        outcome(early, "done"),
        refused,
        outcome(refused, "refused"),
        elsewhere,
        outcome(elsewhere, "done"),
        gang,
        outcome(gang, "done"),
        early,
    ]
    stop = threading.Event()
    reports: list[FleetReport] = []

    def work() -> None:
        reports.append(
            run_fleet(CONFIG, kafka, stop=stop, start_ns=START_NS, speed=20.0, ticks=600, follow_decisions=True)
        )

    thread = threading.Thread(target=work)
    thread.start()
    try:
        with reading(kafka, TELEMETRY.name) as telemetry:
            read(telemetry, lambda found: len(found) >= 24 * 3)  # it follows from before its first tick
        producer = Producer(producer_settings(kafka.bootstrap, client_id="test"))
        messages: list[Message] = [record_message(r, "/test") for r in said]
        messages.append(Message(OUTCOMES.name, b"", b"not a record", []))
        for m in messages:
            assert m.topic in (DECISIONS.name, OUTCOMES.name)
            producer.produce(m.topic, m.value, m.key, headers=list(m.headers))
        assert producer.flush(10) == 0

        def running(found: list[object]) -> dict[str, int]:
            newest: dict[str, Inventory] = {}
            for record in found:
                if isinstance(record, Inventory) and record.epoch >= (newest.get(record.node) or record).epoch:
                    newest[record.node] = record
            counts: dict[str, int] = {}
            for inventory in newest.values():
                for allocation in inventory.allocations:
                    counts[allocation.workload] = counts.get(allocation.workload, 0) + 1
            return counts

        with reading(kafka, INVENTORY.name) as inventories:
            found = read(
                inventories,
                lambda f: running(f).get("asr-batch") == 3 and running(f).get("data-notebooks") == 5,
            )
        assert running(found)["synth-data"] == 24
        assert running(found)["rank-train"] == 4
    finally:
        stop.set()
        thread.join(20)
    assert (reports[0].applied, reports[0].undecodable) == (2, 1)
    assert reports[0].refused == 1
