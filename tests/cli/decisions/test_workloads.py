"""`flyball workloads`: what an owner writes down comes to the topic, and comes back."""

import os
import pty
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
import yaml
from confluent_kafka import Producer
from hypothesis import given, settings, strategies as st
from tests.brokers.base import Broker
from tests.brokers.embedded import EmbeddedBroker
from tests.brokers.kafka import RealKafka
from tests.cli.shell import check_refused, command, environment, flyball

from flyball_cli.workloads.changes import changes_to, warnings_of
from flyball_cli.workloads.reading import read_specs, write_specs
from flyball_cli.workloads.topic import read_topic, write_topic
from flyball_contracts.codec import record_message
from flyball_contracts.config import KafkaConfig
from flyball_contracts.declared.document import WorkloadDocument, plain
from flyball_contracts.declared.moments import moment_ns, moment_text
from flyball_contracts.errors import ConfigError
from flyball_contracts.ids import MAX_TIME_NS
from flyball_contracts.kafka import producer_settings
from flyball_contracts.records import Architecture, Objective, WorkloadSpec
from flyball_contracts.topics import WORKLOADS

NOW = 1_750_000_000_000_000_000
S = 1_000_000_000
CHAT = "workload: chat\nkind: inference\nmax_replicas: 8\n"
PARTITIONS = {WORKLOADS.name: WORKLOADS.partitions}
OWNERS = {f.name: f for f in msgspec.structs.fields(WorkloadSpec) if f.name not in ("time_ns", "removed")}
EXAMPLE = Path(__file__).resolve().parents[3] / "cli" / "flyball_cli" / "workloads" / "example.yaml"


def test_a_document_has_the_fields_of_a_specification_and_its_defaults() -> None:
    fields = {f.name.replace("deadline", "deadline_ns"): f for f in msgspec.structs.fields(WorkloadDocument)}
    assert set(fields) == set(OWNERS)
    assert {name for name in fields if fields[name].default != OWNERS[name].default} == {"cell"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("workload: [", ":1: not valid YAML"),
        ("", ":1: no workload in it; `flyball workloads example`"),
        ("- chat\n", ":1: the document: expected keys with values, got text"),
        ("kind: batch\n", ":1: the document: object missing required field `workload`"),
        (f"{CHAT}max_replica: 3\n", ":4: chat.max_replica: unknown key; did you mean 'max_replicas'?"),
        (f"{CHAT}objective: {{delay: 2}}\n", ":4: chat.objective.delay: unknown key; did you mean 'delay_s'?"),
        (f"{CHAT}time_ns: 5\n", ":4: chat.time_ns: unknown key"),
        (f"{CHAT}removed: true\n", ":4: chat.removed: unknown key"),
        (f"{CHAT}max_replicas: 9\n", ":4: max_replicas: stands twice; it is also in line 3"),
        (f"{CHAT}priority: high\n", ":4: chat.priority: expected a whole number, got text"),
        (f"{CHAT}gang_size: 0\n", ":4: chat.gang_size: must be at least 1"),
        (f"{CHAT}target_utilization: 80\n", ":4: chat.target_utilization: must be at most 1"),
        (f"{CHAT}cold_start_s: .nan\n", ":4: cold_start_s: .nan is not a finite number"),
        (f"{CHAT}checkpoint_s: .inf\n", ":4: checkpoint_s: .inf is not a finite number"),
        (f"{CHAT}objective:\n  delay_s: 2\n  attainment: 99\n", ":6: chat.objective.attainment: must be at most 1"),
        ("workload: a b\nkind: batch\n", ":1: a b.workload: expected letters, digits"),
        (
            "\nworkload: chat\nkind: service\n",
            ":3: chat.kind: expected one of inference, training, notebook, batch",
        ),
        (f"{CHAT}min_replicas: 9\n", ":4: chat.min_replicas: 9 is more than max_replicas, which is 8; lower it"),
        (f"{CHAT}gang_size: 9\n", ":4: chat.gang_size: 9 is more than max_replicas, which is 8"),
        (f"{CHAT}gang_size: 3\nmin_replicas: 7\n", ":5: chat.min_replicas: no number of replicas from 7 to 8 is"),
        (f"{CHAT}deadline: 8h\n", ":4: chat.deadline: it needs duration_s"),
        (f"{CHAT}duration_s: 9\ndeadline: 2027-03-01T06:00:00\n", ":5: chat.deadline: '2027-03-01T06:00:00' has no"),
        (f"{CHAT}duration_s: 9\ndeadline: 2027-13-01T06:00Z\n", ":5: chat.deadline: '2027-13-01T06:00Z' is no moment"),
        (f"{CHAT}duration_s: 9\ndeadline: tomorrow\n", ":5: chat.deadline: 'tomorrow' is no deadline; write a moment"),
        (f"{CHAT}duration_s: 9\ndeadline: {'9' * 400}d\n", f":5: chat.deadline: '{'9' * 400}d' is no deadline; write"),
        (f"{CHAT}duration_s: 9\ndeadline: 9999-01-01T00:00Z\n", ":5: chat.deadline: it lies outside the years"),
        (f"{CHAT}---\n{CHAT}", ":5: chat: is declared twice; it is also in line 1"),
        (f"{CHAT}---\n- workload: b\n  kind: batch\n  gangsize: 2\n", ":7: b.gangsize: unknown key; did you"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_place_and_remedy(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read_specs(text, "work.yaml", NOW)
    assert str(raised.value).startswith(f"work.yaml{message}")
    assert len(str(raised.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"kind": "batch", "max_replicas": 0}, "max_replicas: 0 lets nothing run"),
        ({"kind": "inference"}, "objective: none"),
        ({"kind": "batch", "deadline_ns": NOW + 60 * S, "duration_s": 90.0, "interruptible": True}, "60 s are left"),
        (
            {"kind": "batch", "deadline_ns": NOW + 99 * S, "duration_s": 90.0},
            "put off to cleaner or cheaper hours; set interruptible: true",
        ),
        ({"kind": "notebook", "restart_hung_after_s": 300.0}, "hangs are looked for in training and batch jobs"),
        ({"kind": "training", "restart_hung_after_s": 60.0}, "a slow start could be taken for a hang"),
        ({"kind": "training", "restart_hung_after_s": 61.0}, ""),
    ],
)
def test_what_is_valid_and_probably_not_meant_is_named(more: dict[str, Any], words: str) -> None:
    found = warnings_of(WorkloadSpec(workload="w", cell="default", time_ns=NOW, **more))
    assert [words in text for text in found] == [True] * bool(words)


def test_documents_lists_and_numbers_in_the_usual_notations() -> None:
    model = "model: {parameters: 8e9, layers: 32, heads: 32, kv_heads: 8, head_size: 128}\n"
    specs = read_specs(
        f"# first\n{CHAT}{model}---\n---\n- {{workload: b, kind: batch}}\n- {{workload: c, kind: batch}}\n", "f", NOW
    )
    assert [spec.workload for spec in specs] == ["chat", "b", "c"]
    assert specs[0].model == Architecture(parameters=8e9, layers=32, heads=32, kv_heads=8, head_size=128)
    assert {(spec.time_ns, spec.cell, spec.removed) for spec in specs} == {(NOW, "default", False)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("8h", NOW + 8 * 3600 * S),
        ("1d12h", NOW + 36 * 3600 * S),
        ("1.5 h", NOW + 5400 * S),
        ("90min", NOW + 5400 * S),
        ("1970-01-01T01:00:00.5+01:00", S // 2),
        ("1970-01-02 00:00Z", 86_400 * S),
    ],
)
def test_deadlines(text: str, expected: int) -> None:
    spec = read_specs(f"{CHAT}duration_s: 60\ndeadline: {text}\n", "f", NOW)[0]
    assert spec.deadline_ns == expected


@given(st.integers(0, MAX_TIME_NS))
def test_a_moment_is_written_in_full(time_ns: int) -> None:
    assert moment_ns(moment_text(time_ns), NOW) == time_ns


NAMES = st.from_regex(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,20}[A-Za-z0-9])?", fullmatch=True)
LABELS = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1, max_size=20)
AMOUNTS = st.floats(0, 1e9)
POSITIVE = st.floats(1e-3, 1e9)


@st.composite
def specs(draw: st.DrawFn) -> WorkloadSpec:
    gang, duration_s = draw(st.integers(1, 9)), draw(st.none() | POSITIVE)
    least = gang * draw(st.integers(0, 9))
    return WorkloadSpec(
        workload=draw(NAMES),
        cell=draw(NAMES),
        time_ns=NOW,
        kind=draw(st.sampled_from(["inference", "training", "notebook", "batch"])),
        tenant=draw(LABELS),
        priority=draw(st.integers(-100, 100)),
        gang_size=gang,
        gpus_per_replica=draw(AMOUNTS),
        gpu_models=tuple(draw(st.lists(LABELS, max_size=2))),
        min_replicas=least,
        max_replicas=max(gang, least) + draw(st.integers(0, 9)),
        capacity_per_replica=draw(AMOUNTS),
        target_utilization=draw(st.floats(0.01, 1)),
        cold_start_s=draw(AMOUNTS),
        objective=draw(st.none() | st.builds(Objective, delay_s=POSITIVE, token_s=st.none() | POSITIVE)),
        interruptible=draw(st.booleans()),
        checkpoint_s=draw(AMOUNTS),
        deadline_ns=None if duration_s is None else draw(st.none() | st.integers(0, MAX_TIME_NS)),
        duration_s=duration_s,
        power_w_per_replica=draw(st.none() | AMOUNTS),
        model=draw(
            st.none()
            | st.builds(Architecture, parameters=POSITIVE, layers=st.integers(1, 99), heads=st.just(32),
                        kv_heads=st.sampled_from([1, 8]), head_size=st.integers(1, 256))
        ),
    )  # fmt: skip


@settings(max_examples=50)
@given(st.lists(specs(), min_size=1, max_size=2, unique_by=lambda spec: spec.workload))
def test_what_is_shown_can_be_applied(wanted: list[WorkloadSpec]) -> None:
    assert read_specs(write_specs(wanted), "f", NOW) == wanted


def test_what_a_cluster_declares_is_shown_and_no_error_when_it_is_applied_again() -> None:
    (chat,) = read_specs("workload: chat\nkind: inference\n", "f", NOW)
    text = write_specs([chat, msgspec.structs.replace(chat, workload="ml/chat")])
    assert "# workload: ml/chat" in text
    assert read_specs(text, "f", NOW) == [chat]


def test_a_change_is_newer_than_what_it_replaces() -> None:
    (spec,) = read_specs(CHAT, "f", NOW)
    ahead = msgspec.structs.replace(spec, time_ns=NOW + S)
    more = msgspec.structs.replace(spec, max_replicas=9)
    assert changes_to([spec], {"chat": ahead}) == []
    (change,) = changes_to([more], {"chat": ahead})
    assert change.after.time_ns == NOW + S + 1
    (change,) = changes_to([spec], {"chat": msgspec.structs.replace(ahead, removed=True)})
    assert (change.before, change.after.removed, change.after.time_ns) == (None, False, NOW + S + 1)


@pytest.fixture(params=["embedded", pytest.param("kafka", marks=pytest.mark.integration)])
def own_broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A broker on which nobody else has declared a workload."""
    if request.param == "kafka":
        with RealKafka(jars=request.getfixturevalue("kafka_jars")) as kafka:
            yield kafka
    else:
        with EmbeddedBroker({}) as embedded:
            yield embedded


def test_declared_changed_listed_shown_and_removed(own_broker: Broker, tmp_path: Path) -> None:
    if isinstance(own_broker, EmbeddedBroker):
        own_broker.create_topics(PARTITIONS)
    else:
        assert flyball("topics", "--create", "--bootstrap", own_broker.bootstrap).returncode == 0
    kafka, at = KafkaConfig(bootstrap=own_broker.bootstrap), ["--bootstrap", own_broker.bootstrap]
    file = tmp_path / "workloads.yaml"
    file.write_text(flyball("workloads", "example").stdout)
    tried = flyball("workloads", "apply", file, "--dry-run", *at)
    assert tried.returncode == 0, tried.stderr
    assert "+ chat (new)" in tried.stdout
    assert "nothing was" in tried.stdout
    assert read_topic(kafka) == {}
    refused = flyball("workloads", "apply", file, *at)
    check_refused(refused.returncode, refused.stderr, "--yes", "--dry-run")
    assert read_topic(kafka) == {}
    sent = flyball("workloads", "apply", file, "--yes", *at)
    assert sent.returncode == 0, sent.stderr
    assert "3 workloads sent" in sent.stdout
    assert set(read_topic(kafka)) == {"chat", "pretrain", "nightly-embeddings"}

    shown = flyball("workloads", "show", "*", *at).stdout
    file.write_text(shown)
    again = flyball("workloads", "apply", file, *at)  # nothing to ask for
    assert "3 workloads already as" in again.stdout
    assert "nothing to send" in again.stdout
    file.write_text(shown.replace("max_replicas: 40", "max_replicas: 50"))
    more = flyball("workloads", "apply", file, "--yes", *at).stdout
    assert "~ chat\n    max_replicas: 40 -> 50\n1 workload sent" in more
    assert read_topic(kafka)["chat"].max_replicas == 50

    removed = flyball("workloads", "remove", "chat", "--yes", *at)
    assert removed.returncode == 0, removed.stderr
    assert "goes on running" in removed.stdout
    assert read_topic(kafka)["chat"].removed
    listed = flyball("workloads", "list", *at).stdout
    assert "chat" not in listed
    assert listed.splitlines()[-1].startswith("2 workloads in 1 cell: ")
    missing = flyball("workloads", "show", "pretrian", *at)
    check_refused(missing.returncode, missing.stderr, "'pretrian'", "did you mean 'pretrain'?")


def test_somebody_at_a_terminal_is_asked_to_confirm(
    embedded_broker: Callable[..., EmbeddedBroker], tmp_path: Path
) -> None:
    bootstrap = embedded_broker(PARTITIONS).bootstrap
    (tmp_path / "w.yaml").write_text(CHAT)
    for answer, count in (("n", 0), ("y", 1)):
        theirs, ours = pty.openpty()
        process = subprocess.Popen(
            command("workloads", "apply", tmp_path / "w.yaml", "--bootstrap", bootstrap),
            stdin=ours, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(),
        )  # fmt: skip
        os.write(theirs, f"{answer}\n".encode())
        out, _ = process.communicate(timeout=60)
        os.close(theirs)
        os.close(ours)
        assert f"Send 1 workload to {bootstrap}?" in out
        assert process.returncode == (0 if count else 130)
        assert len(read_topic(KafkaConfig(bootstrap=bootstrap))) == count


def test_the_newest_record_counts_and_what_cannot_be_read_is_passed_over(
    embedded_broker: Callable[..., EmbeddedBroker],
) -> None:
    bootstrap = embedded_broker(PARTITIONS).bootstrap
    (spec,) = read_specs(CHAT, "f", NOW)
    older = msgspec.structs.replace(spec, time_ns=NOW - 1, max_replicas=1)
    gone = msgspec.structs.replace(spec, workload="gone")
    producer = Producer(producer_settings(bootstrap, client_id="test"))
    for one in (spec, older, gone):
        m = record_message(one, "/test")
        producer.produce(m.topic, m.value, m.key, headers=cast(Any, m.headers))
    producer.produce(WORKLOADS.name, None, b"gone")
    producer.produce(WORKLOADS.name, b"{", b"chat")
    assert producer.flush(30.0) == 0
    assert read_topic(KafkaConfig(bootstrap=bootstrap)) == {"chat": spec}


def test_a_thousand_workloads(embedded_broker: Callable[..., EmbeddedBroker]) -> None:
    bootstrap = embedded_broker(PARTITIONS).bootstrap
    many = [
        WorkloadSpec(workload=f"svc-{i:04d}", cell=f"cell-{i % 3}", time_ns=NOW, kind="inference", tenant=f"t{i % 7}")
        for i in range(1_000)
    ]
    write_topic(KafkaConfig(bootstrap=bootstrap), many)
    lines = flyball("workloads", "list", "--bootstrap", bootstrap).stdout.splitlines()
    assert len(lines) == 1_002
    assert lines[-1] == "1,000 workloads in 3 cells: 1,000 inference"
    few = flyball("workloads", "list", "svc-09*", "--cell", "cell-0", "--bootstrap", bootstrap).stdout.splitlines()
    assert [line.split()[0] for line in few[1:-1]] == [f"svc-{i:04d}" for i in range(900, 1_000) if i % 3 == 0]


def test_a_broker_without_the_topic(embedded_broker: Callable[..., EmbeddedBroker]) -> None:
    empty = flyball("workloads", "list", "--bootstrap", embedded_broker({}).bootstrap)
    check_refused(empty.returncode, empty.stderr, "flyball topics --create")


def test_the_example_shows_every_field_and_only_what_counts_is_shown() -> None:
    text = EXAMPLE.read_text()
    assert [name for name in WorkloadDocument.__struct_fields__ if f"{name}:" not in text] == []
    comment = "".join(line.removeprefix("#") for line in text.splitlines()[1:5])
    defaults = yaml.safe_load("{" + comment.strip().rstrip(".") + "}")
    blank = plain(WorkloadSpec(workload="w", cell="default", time_ns=0, kind="batch"))
    assert defaults | {"gpu_models": ()} == {k: v for k, v in blank.items() if k not in ("workload", "kind")}
    assert write_specs(read_specs(CHAT, "f", NOW)) == CHAT
