import logging

import pytest
from confluent_kafka import KafkaError

from flyball_contracts.kafka.log import AWAY_S, EVERY_S, ClientLog, Outages, RepeatFilter


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_a_broker_that_is_away_is_reported_once_a_process_and_again_after_a_while(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock, outages = Clock(), Outages()
    clients = [
        ClientLog(logging.getLogger("test"), who, "10.0.0.1:9092", clock, outages) for who in ("tables", "decisions")
    ]
    for _ in range(round(1.5 * AWAY_S)):
        clock.now_s += 1.0
        for number, client in enumerate(clients):
            tried = f"10.0.0.1:9092/bootstrap: Connection refused (after {number}ms in state CONNECT)"
            client.on_error(KafkaError(KafkaError._TRANSPORT, tried))
            client.on_error(KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))
            client.log(3, "%s: connection refused", "thrd:1")
    assert len(caplog.records) == 2
    assert "no Kafka broker answers at 10.0.0.1:9092" in caplog.text
    clients[1].on_error(KafkaError(KafkaError._RESOLVE, "10.0.0.1:9092/bootstrap: Host resolution failure"))
    assert len(caplog.records) == 3, "another reason"


def test_other_errors_are_reported_by_each_client_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    client = ClientLog(logging.getLogger("test"), "tables", "10.0.0.1:9092", clock)
    for _ in range(round(2 * EVERY_S)):
        clock.now_s += 1.0
        client.on_error(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
    assert len(caplog.records) == 2
    assert "tables: Kafka at 10.0.0.1:9092: " in caplog.text


def test_librdkafkas_own_lines_are_for_debugging(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        ClientLog(logging.getLogger("test"), "tables", "b").log(3, "%s: refused", "thrd:1")
    assert [(r.levelno, r.getMessage()) for r in caplog.records] == [(logging.DEBUG, "thrd:1: refused")]


def test_storms_are_thinned_out_and_counted() -> None:
    clock = Clock()
    storms = RepeatFilter("aiokafka", monotonic=clock)

    def record(name: str, line: int, text: str = "node %d is not ready") -> logging.LogRecord:
        return logging.LogRecord(name, logging.ERROR, "client.py", line, text, (1,), None)

    assert storms.filter(record("aiokafka.client", 1))
    assert not any(storms.filter(record("aiokafka.client", 1)) for _ in range(99))
    assert storms.filter(record("aiokafka.client", 2))  # another line of theirs
    assert all(storms.filter(record("flyball_streams.worker", 1)) for _ in range(9))
    clock.now_s = EVERY_S
    later = record("aiokafka.client", 1)
    assert storms.filter(later)
    assert later.getMessage() == "node 1 is not ready (and 99 more since the last)"
