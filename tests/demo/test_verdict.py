"""The demo's verdict: what is reported as done is looked for on the platform."""

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer
from msgspec.structs import replace
from tests.brokers.embedded import EmbeddedBroker
from tests.contracts.strategies import samples

from flyball_cli.demo.monitor import Monitor
from flyball_cli.demo.summary import failures
from flyball_contracts.codec import record_message
from flyball_contracts.config import KafkaConfig
from flyball_contracts.kafka import producer_settings
from flyball_contracts.records import Outcome, Record, SubjectState
from flyball_contracts.records.commands.outcomes import OutcomeStatus
from flyball_contracts.simulated import Operation
from flyball_contracts.topics import TOPICS

Publish = Callable[..., Monitor]


@pytest.fixture
def published(embedded_broker: Callable[..., EmbeddedBroker]) -> Iterator[Publish]:
    """A monitor that has seen a sample decision of each kind, and the records that it is called with."""
    broker = embedded_broker(dict.fromkeys(TOPICS, 1))
    monitor = Monitor(KafkaConfig(bootstrap=broker.bootstrap))

    def publish(*records: Record) -> Monitor:
        producer = Producer(producer_settings(broker.bootstrap, client_id="test"))
        decisions = [replace(samples()[kind][0], id=kind) for kind in ("Scale", "Migrate", "Preempt")]
        for record in (*decisions, *records):
            topic, key, value, headers, _ = record_message(record, "/test")
            producer.produce(topic, value, key, headers=list(headers))
        assert producer.flush(30.0) == 0
        while len(monitor.decisions) < len(decisions) or len(monitor.outcomes) < len(records):
            monitor.poll(0.2)
        return monitor

    yield publish
    monitor.close()


def outcome(kind: str, status: OutcomeStatus) -> Outcome:
    return Outcome(
        id=f"{kind}-{status}", decision=kind, type="Scale", target="c/w", cell="c", workload="w", time_ns=1,
        status=status, mode="live", driver="simulated",
    )  # fmt: skip


def operation(kind: str, effects: int = 1) -> Operation:
    state = SubjectState()
    return Operation(
        id=kind, workload="w", status="done", detail="", submitted_ns=1, before=state, expected=state,
        observed=state, effects=effects,
    )  # fmt: skip


def operations(*found: Operation) -> dict[str, Operation]:
    return {one.id: one for one in found}


def test_the_loop_closed(published: Publish) -> None:
    monitor = published(outcome("Scale", "done"), outcome("Migrate", "refused"), outcome("Preempt", "superseded"))
    assert failures(monitor, operations(operation("Scale")), ("Scale", "Migrate", "Preempt"), []) == []


def test_without_an_effect_the_loop_is_open(published: Publish) -> None:
    monitor = published(outcome("Scale", "planned"), outcome("Migrate", "failed"))
    problems = failures(monitor, operations(operation("Preempt")), (), [])
    assert [p.split(",")[0] for p in problems] == ["1 decisions have no last outcome", "no effect was observed"]


def test_what_is_reported_done_must_have_happened_once(published: Publish) -> None:
    monitor = published(*(outcome(kind, "done") for kind in ("Scale", "Migrate", "Preempt")))
    problems = failures(monitor, operations(operation("Scale"), operation("Migrate", effects=2)), (), [])
    assert any("1 decisions are reported done, but were not carried out" in p for p in problems)
    assert any("1 decisions had more than one effect" in p for p in problems)
