"""`flyball explain`: one decision from its evidence to what was seen, on one screen."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from confluent_kafka import Producer
from rich.console import Console
from tests.actuators.loop import PARTITIONS, publish
from tests.actuators.samples import CELL, NOW, S, scale
from tests.brokers.embedded import EmbeddedBroker
from tests.brokers.kafka import RealKafka
from tests.cli.shell import flyball

from flyball_actuators.audit import Trail
from flyball_actuators.guard import Verdict
from flyball_actuators.platforms.calls import Call
from flyball_cli.explain import records
from flyball_cli.explain.screen import screen
from flyball_contracts.codec import record_message
from flyball_contracts.config import ActuatorConfig, KafkaConfig
from flyball_contracts.kafka import producer_settings
from flyball_contracts.records import Anomaly, Effect, Evidence, Outcome, Record, Scale
from flyball_contracts.topics import Topic

ANOMALY = Anomaly(id="an-1", subject="GPU-7", cell=CELL, node="n1", time_ns=NOW - 3 * S, detector="peers", score=0.9)


def decided(id_: str) -> Scale:
    evidence = (
        Evidence(name="anomaly", value=0.9, record="an-1"),
        Evidence(name="demand", value=120.0, unit="{token}/s", expected=100.0),
        Evidence(name="proposal", value=1.0, record="0123456789abcdef"),
    )
    return msgspec.structs.replace(scale(id_), evidence=evidence, expected=Effect(gpus=2.0))


def outcome(decision: Scale, status: Any, after_s: float, **more: Any) -> Outcome:
    return Outcome(
        id=f"{decision.id}-{status}", decision=decision.id, type="Scale", target=decision.target, cell=CELL,
        workload=decision.workload, time_ns=NOW + round(after_s * S), status=status, mode="live",
        driver="kubernetes", **more,
    )  # fmt: skip


def published(bootstrap: str) -> str:
    one, two = decided("d-one"), decided("d-two")
    publish(
        bootstrap, ANOMALY, one, two,
        outcome(one, "accepted", 0.5), outcome(one, "running", 0.6, answer="set from 4 to 6 [audit]"),
        outcome(one, "done", 42.0, answer="6 ready", effect=Effect(gpus=2.0, cost_usd_per_hour=8.5)),
        outcome(two, "refused", 0.1, code="rate", detail="too many; there is room again in 3 s"),
    )  # fmt: skip
    return bootstrap


@pytest.fixture
def address(embedded_broker: Callable[..., EmbeddedBroker]) -> str:
    return published(embedded_broker(PARTITIONS).bootstrap)


@pytest.mark.integration
def test_kafka_finds_it_by_time(kafka_jars: Path) -> None:
    with RealKafka(PARTITIONS, jars=kafka_jars) as broker:
        address = published(broker.bootstrap)
        assert "Anomaly of GPU-7" in flyball("explain", "d-one", "--bootstrap", address).stdout
        later = flyball("explain", "d-one", "--since", "0", "--bootstrap", address)
        assert "there is none in the last 0 days" in later.stderr


def test_a_decision_is_reported_from_its_evidence_to_its_effect(address: str) -> None:
    done = flyball("explain", "d-o", "--bootstrap", address)
    assert done.returncode == 0, done.stderr
    lines = " ".join(done.stdout.split())
    for words in (
        "Scale cell-a/chat done", "4 → 6 replicas", "demand rises", "120 {token}/s 100 {token}/s", "Anomaly of GPU-7",
        "proposal 01234567", "0.5 s accepted", "set from 4 to 6 [audit]", "42.0 s done", "GPUs +2 +2",
        "cost not estimated +8.5 $/h",
    ):  # fmt: skip
        assert words in lines, (words, done.stdout)
    refused = flyball("explain", "d-two", "--bootstrap", address)
    assert "rate; too many; there is room again" in " ".join(refused.stdout.split())


def test_where_the_audit_trail_is_each_look_of_the_guard_is_shown(address: str, tmp_path: Path) -> None:
    audit, config = tmp_path / "audit", tmp_path / "flyball.yaml"
    config.write_text(f"actuator: {{audit: {audit}}}\n")
    with Trail(audit, "host/1/aa", ActuatorConfig(), lambda: NOW) as trail:
        trail.judged(decided("d-one"), "observed", Verdict("accepted", "", ""), ("rate", "conflict"))
        trail.judged(decided("d-one"), "last", Verdict("refused", "rate", "too many", check="rate"), ())
    lines = " ".join(flyball("explain", "d-one", "--config", str(config), "--bootstrap", address).stdout.split())
    assert "on what the platform showed 2 passed right before the call rate objects: too many" in lines


def test_the_latest_can_be_requested(address: str) -> None:
    assert json.loads(flyball("explain", "latest", "--json", "--bootstrap", address).stdout)["decision"]["id"] in (
        "d-one",
        "d-two",
    )
    last = msgspec.structs.replace(scale("d-three", time_ns=NOW + S))
    time.sleep(0.01)
    publish(address, last)
    assert (
        json.loads(flyball("explain", "latest", "--json", "--bootstrap", address).stdout)["decision"]["id"] == "d-three"
    )


def test_brackets_in_names_are_shown_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    names = ("arrivals{workload=train[a]}", "dearer.p5 [/]")
    evidence = tuple(Evidence(name=name, value=1.0, unit="[degF]", record="0123456789") for name in names)
    decision = msgspec.structs.replace(scale("d"), evidence=evidence)
    Console(width=200).print(screen(records.DecisionRecords(decision, [outcome(decision, "running", 1.0)], {})))
    lines = " ".join(capsys.readouterr().out.split())
    assert "arrivals{workload=train[a]} 1 [degF]" in lines
    assert "dearer.p5 [/] 01234567" in lines


def send(address: str, *sent: tuple[Record, int]) -> None:
    """Publish records with these times of the broker, in ms."""
    producer = Producer(producer_settings(address, client_id="test"))
    for record, sent_ms in sent:
        m = record_message(record, "/test")
        producer.produce(m.topic, m.value, m.key, headers=list(m.headers), timestamp=sent_ms)
    assert producer.flush(10) == 0


def test_an_outcome_is_found_whatever_the_clock_of_its_actuator(
    embedded_broker: Callable[..., EmbeddedBroker], monkeypatch: pytest.MonkeyPatch
) -> None:
    address, now_ms = embedded_broker(PARTITIONS).bootstrap, round(time.time() * 1e3)
    refused, repeated = decided("d-refused"), decided("d-repeated")
    send(
        address, (refused, now_ms), (outcome(refused, "refused", 0.1, code="rate"), now_ms - 200),
        (repeated, now_ms + 1), (outcome(repeated, "done", 42.0), now_ms + 42_000), (repeated, now_ms + 300_000),
    )  # fmt: skip
    whole = records._messages  # pyright: ignore[reportPrivateUsage]

    def by_time(consumer: Any, topic: Topic, from_ms: int, *others: Any, **named: Any) -> Iterator[tuple[Any, int]]:
        """What Kafka sends from a time on; the embedded broker does not find offsets by time."""
        return (one for one in whole(consumer, topic, from_ms, *others, **named) if one[1] >= from_ms)

    monkeypatch.setattr(records, "_messages", by_time)
    kafka = KafkaConfig(bootstrap=address)
    assert [o.status for o in records.read_records(kafka, "d-refused", 60.0).outcomes] == ["refused"]
    latest = records.read_records(kafka, "latest", 60.0)
    assert (latest.decision.id, [o.status for o in latest.outcomes]) == ("d-repeated", ["done"])


@pytest.mark.parametrize("command", [("explain", "latest"), ("waste",), ("incidents", "list"), ("incidents", "nodes")])
def test_a_broker_without_the_topics_is_reported_in_a_line(
    embedded_broker: Callable[..., EmbeddedBroker], command: tuple[str, ...]
) -> None:
    done = flyball(*command, "--bootstrap", embedded_broker({"other": 1}).bootstrap)
    assert done.returncode == 2, done.stderr
    assert "create the topics with `flyball topics --create`" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_its_records_can_be_had_as_json(address: str) -> None:
    found = json.loads(flyball("explain", "d-one", "--json", "--bootstrap", address).stdout)
    assert found["decision"]["id"] == "d-one"
    assert [o["status"] for o in found["outcomes"]] == ["accepted", "running", "done"]
    assert set(found["records"]) == {"an-1"}


@pytest.mark.parametrize(
    ("name", "expected"),
    [("d-", "2 decisions begin with it: d-one, d-two"), ("nothing", "there is none in the last 7 days")],
)
def test_what_is_not_one_decision_is_reported_in_a_line(address: str, name: str, expected: str) -> None:
    done = flyball("explain", name, "--bootstrap", address)
    assert done.returncode != 0
    assert expected in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_decision_with_many_calls_is_still_one_screen(address: str, tmp_path: Path) -> None:
    path, decision = tmp_path / "audit", decided("d-one")
    with Trail(path, "host/1/aa", ActuatorConfig(), lambda: NOW) as trail:
        for i in range(500):
            trail.judged(decision, "last", Verdict("accepted", "", ""), ("rate",))
            trail.called(decision.id, "kubernetes", Call(verb="POST", object=f"/pods/p{i}/eviction", status="201"))
    config = tmp_path / "flyball.yaml"
    config.write_text(f"kafka: {{bootstrap: '{address}'}}\nactuator: {{audit: '{path}'}}\n")
    done = flyball("explain", "d-one", "--config", str(config))
    lines = done.stdout.splitlines()
    assert len(lines) < 70, done.stdout
    assert sum("... 484 more, see --json" in line for line in lines) == 2
    shown = [line.split()[1] for line in lines if "/eviction" in line]
    assert (len(shown), shown[0], shown[-1]) == (16, "/pods/p0/eviction", "/pods/p499/eviction")
    whole = json.loads(flyball("explain", "d-one", "--config", str(config), "--json").stdout)
    assert len(whole["audit"]) == 1000


def test_an_id_that_many_decisions_begin_with_names_a_few(address: str) -> None:
    publish(address, *(decided(f"many-{i}") for i in range(40)))
    done = flyball("explain", "many", "--bootstrap", address)
    assert done.returncode != 0
    assert "more than 5 decisions begin with it: many-" in done.stderr
    assert done.stderr.count("many-") == 5
