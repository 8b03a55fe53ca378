"""What a user gets wrong: each is one line that says what and where, never a traceback."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.cli.shell import NOBODY, check_refused, flyball

from flyball_contracts.errors import RecordingError
from flyball_contracts.topics import TELEMETRY, WORKLOADS, Topic
from flyball_streams.backtest.demands.recorded import read_recording
from flyball_streams.recording import Recording, RecordingWriter

GOOD = "worker:\n  app: mine\n"


@pytest.mark.timeout(180)
def test_wrong_broker_address(tmp_path: Path, recording: Path) -> None:
    commands: list[list[object]] = [
        ["worker"],
        ["actuate"],
        ["record", tmp_path / "out.parquet", "--for", "1"],
        ["replay", recording, "--to-broker"],
        ["topics", "--create"],
        ["workloads", "list"],
        ["stop", "--reason", "a"],
        ["fleet"],
        ["demo", "--headless", "--for", "5"],
    ]
    with ThreadPoolExecutor(len(commands)) as pool:  # each asks for ten seconds
        running = [pool.submit(flyball, *words, "--bootstrap", NOBODY) for words in commands]
    for done in (ended.result() for ended in running):
        *warnings, last = done.stderr.splitlines()
        check_refused(done.returncode, last, NOBODY)
        assert "run the command again" not in last, "that is no remedy"
        assert all("WARNING" in line and NOBODY in line for line in warnings)
        assert len(warnings) <= 2, "once, and once more for another reason"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("worker: [\n", [":2", "YAML"]),
        ("worker:\n  ap: mine\n", [":2", "worker.ap", "did you mean 'app'"]),
        ("worker:\n  table_age_s: 0\n", [":2", "table_age_s", "more than 0"]),
        ("kafka:\n  bootstrap: 17\n", [":2", "bootstrap", "text"]),
        ("kafka:\n  # ours\n  bootstrap: kafka\n", [":3: kafka.bootstrap: 'kafka'", "HOST:PORT"]),
    ],
)
def test_broken_configuration(text: str, words: list[str], tmp_path: Path) -> None:
    path = tmp_path / "flyball.yaml"
    path.write_text(text)
    done = flyball("topics", "--config", path)
    check_refused(done.returncode, done.stderr, str(path), *words)


def test_files_that_are_not_there(tmp_path: Path, recording: Path) -> None:
    away = tmp_path / "away"
    for arguments in (
        ["topics", "--config", away],
        ["replay", away],
        ["worker", "--history", away],
        ["fleet", away],
        ["replay", recording, "--out", away / "decisions"],
    ):
        done = flyball(*arguments)
        check_refused(done.returncode, done.stderr, str(away))


def test_files_that_are_no_recording(tmp_path: Path, recording: Path) -> None:
    text, cut = tmp_path / "text.parquet", tmp_path / "cut.parquet"
    text.write_text("nobody recorded this")
    cut.write_bytes(recording.read_bytes()[:-100])
    for path in (text, cut):
        done = flyball("replay", path)
        check_refused(done.returncode, done.stderr, str(path))


def without(topic: Topic, recording: Path, out: Path) -> Path:
    """The recording without the messages of one topic."""
    with RecordingWriter(out, made_by="test") as writer:
        for message in (m for batch in Recording.open(recording).messages() for m in batch):
            if message.topic != topic.name:
                writer.append(message)
    return out


def test_a_recording_without_telemetry(tmp_path: Path, recording: Path) -> None:
    silent = without(TELEMETRY, recording, tmp_path / "silent.parquet")
    for command in (["replay"], ["waste"], ["demo", "--headless", "--for", "5", "--recording"]):
        done = flyball(*command, silent)
        check_refused(done.returncode, done.stderr, str(silent), "no telemetry", TELEMETRY.name)


def test_what_a_recording_cannot_answer_is_said_before_it_is_replayed(tmp_path: Path, recording: Path) -> None:
    unnamed = without(WORKLOADS, recording, tmp_path / "unnamed.parquet")
    replayed: list[int] = []
    for path, workload, words in (
        (unnamed, None, "no workload reports work per second and has a capacity per replica; record"),
        (recording, "nope", "there is no served workload 'nope'; known: chat-api, embed-api"),
    ):
        with pytest.raises(RecordingError, match=words) as error:
            read_recording(path, progress=lambda done, _: replayed.append(done), workload=workload)
        assert str(path) in str(error.value)
    assert replayed == []
