"""The commands that do their work and end."""

import json
import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.brokers.base import Broker
from tests.brokers.embedded import EmbeddedBroker
from tests.cli.shell import NOBODY, flyball

from flyball_contracts.topics import SIGNALS, STATE, TELEMETRY, TOPICS
from flyball_streams.recording import Recording

PARTITIONS = {name: topic.partitions for name, topic in TOPICS.items()}


@pytest.fixture(scope="module")
def replayed(recording: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, str]:
    """What `flyball replay` writes and shows."""
    out = tmp_path_factory.mktemp("replayed") / "decisions"
    done = flyball("replay", recording, "--out", out)
    assert done.returncode == 0, done.stderr
    return out.read_bytes(), done.stdout


def test_replay_is_the_same_to_the_byte(recording: Path, replayed: tuple[bytes, str], tmp_path: Path) -> None:
    written, shown = replayed
    out = tmp_path / "again"
    assert flyball("replay", recording, "--out", out).stdout == shown
    assert out.read_bytes() == written
    decisions = [json.loads(line) for line in written.splitlines()]
    kinds = Counter(d["type"] for d in decisions)
    assert set(kinds) == {"Scale", "Migrate", "Preempt"}
    rows = [line.split() for line in shown.splitlines()]
    for kind, count in kinds.items():
        assert [kind, str(count)] in rows
    assert "refused" not in shown


def test_another_policy_decides_otherwise(recording: Path, replayed: tuple[bytes, str], tmp_path: Path) -> None:
    policy, out = tmp_path / "candidate.yaml", tmp_path / "decisions"
    policy.write_text("worker:\n  sizing:\n    policy: forecast_band\n")
    assert flyball("replay", recording, "--out", out, "--config", policy).returncode == 0
    assert out.read_bytes() != replayed[0]


def test_what_is_recorded_can_be_played_and_recorded_again(
    recording: Path, replayed: tuple[bytes, str], tmp_path: Path, embedded_broker: Callable[..., EmbeddedBroker]
) -> None:
    at = ["--bootstrap", embedded_broker(PARTITIONS).bootstrap]
    again, out = tmp_path / "again.parquet", tmp_path / "decisions"
    played = flyball("replay", recording, "--to-broker", *at)
    assert played.returncode == 0, played.stderr
    recorded = flyball("record", again, "--for", "1", *at)
    assert recorded.returncode == 0, recorded.stderr
    count = Recording.open(recording).rows
    assert f"{count} messages sent" in played.stdout
    assert f"{count} messages in {again}" in recorded.stdout
    assert flyball("replay", again, "--out", out).returncode == 0
    assert out.read_bytes() == replayed[0]


def test_topics_are_listed(tmp_path: Path) -> None:
    config = tmp_path / "flyball.yaml"
    config.write_text(f"kafka:\n  partitions:\n    {TELEMETRY.name}: 48\n")
    shown = flyball("topics", "--config", config)
    assert shown.returncode == 0
    rows = {line.split()[0]: line for line in shown.stdout.splitlines()[1:]}
    assert set(rows) == set(TOPICS)
    assert " 48 " in rows[TELEMETRY.name]
    assert "compacted" in rows[STATE.name]
    assert "days" in rows[SIGNALS.name]


def test_topics_are_created_once(broker: Broker) -> None:
    if isinstance(broker, EmbeddedBroker):  # it takes no requests to create topics, but finds them all there
        broker.create_topics(PARTITIONS)
    first = flyball("topics", "--create", "--bootstrap", broker.bootstrap)
    assert first.returncode == 0, first.stderr
    second = flyball("topics", "--create", "--bootstrap", broker.bootstrap)
    assert second.stdout.strip() == f"created 0 of {len(TOPICS)} topics"


def test_schemas(tmp_path: Path) -> None:
    names = flyball("schema").stdout.split()
    assert {"Scale", "Migrate", "Preempt", "Outcome"} <= set(names)
    scale = json.loads(flyball("schema", "Scale").stdout)
    assert "replicas" in json.dumps(scale)
    assert flyball("schema", "--write", tmp_path).returncode == 0
    assert (tmp_path / "asyncapi.yaml").is_file()
    assert len(list((tmp_path / "schemas").glob("*.json"))) == len(names)


def test_doctor_explains_and_does_not_judge(embedded_broker: Callable[..., EmbeddedBroker]) -> None:
    away = flyball("doctor", "--bootstrap", NOBODY)
    assert away.returncode == 0, away.stderr
    assert f"no broker answers at {NOBODY}" in away.stdout
    empty = flyball("doctor", "--bootstrap", embedded_broker({}).bootstrap)
    assert "flyball topics --create" in empty.stdout
    whole = flyball("doctor", "--bootstrap", embedded_broker(PARTITIONS).bootstrap)
    assert f"has all {len(TOPICS)} topics" in whole.stdout
    assert "python" in whole.stdout


def test_health(tmp_path: Path) -> None:
    beat = tmp_path / "beat"
    assert flyball("health", beat).returncode == 1
    beat.touch()
    assert flyball("health", beat).returncode == 0
    long_ago_s = time.time() - 100.0
    os.utime(beat, (long_ago_s, long_ago_s))
    assert flyball("health", beat).returncode == 1
    assert flyball("health", beat, "--max-age", "200").returncode == 0


def test_a_beat_in_the_future_is_no_sign_of_life(tmp_path: Path) -> None:
    beat = tmp_path / "beat"
    beat.touch()
    later_s = time.time() + 3600.0
    os.utime(beat, (later_s, later_s))
    done = flyball("health", beat)
    assert done.returncode == 1
    assert "in the future" in done.stdout


def test_importers_are_listed() -> None:
    shown = flyball("import")
    assert shown.returncode == 0
    assert {"alibaba_gentd26", "azure_llm_2023", "servegen"} <= {line.split()[0] for line in shown.stdout.splitlines()}


def test_output_may_be_cut_off() -> None:
    import subprocess

    from tests.cli.shell import command, environment

    options: dict[str, Any] = {"env": environment(), "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command("schema", "Scale"), stdout=subprocess.PIPE, **options) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()  # as `| head` does
        assert "Traceback" not in process.stderr.read()
