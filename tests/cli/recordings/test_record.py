"""`flyball record` while the broker goes away and comes back."""

import signal
import subprocess
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from queue import Queue

from tests.brokers.embedded import EmbeddedBroker
from tests.cli.shell import flyball, start

from flyball_contracts.topics import TOPICS
from flyball_streams.recording import Recording

PARTITIONS = {name: topic.partitions for name, topic in TOPICS.items()}


@contextmanager
def recording_into(out: Path, broker: EmbeddedBroker) -> Generator[tuple[subprocess.Popen[str], Queue[str]]]:
    """`flyball record`, and what it writes to standard error, line by line."""
    lines = Queue[str]()
    with start("record", out, "--log-level", "INFO", "--bootstrap", broker.bootstrap) as process:
        source = process.stderr
        assert source is not None

        def read() -> None:
            for line in source:
                lines.put(line)

        reader = threading.Thread(target=read)
        reader.start()
        try:
            yield process, lines
        finally:
            process.kill()
            reader.join()


def until(lines: Queue[str], words: str) -> str:
    """The next line with these words."""
    while words not in (line := lines.get(timeout=60)):
        pass
    return line


def replayed(recording: Path, broker: EmbeddedBroker) -> None:
    assert flyball("replay", recording, "--to-broker", "--bootstrap", broker.bootstrap).returncode == 0


def lose(broker: EmbeddedBroker, lines: Queue[str]) -> None:
    """Take the broker away once something is recorded, and wait until that is logged."""
    until(lines, "first messages are recorded")
    broker.set_down()
    until(lines, "trying again")


def test_a_broker_that_goes_away_is_reported_once_and_so_is_its_return(
    recording: Path, tmp_path: Path, embedded_broker: Callable[..., EmbeddedBroker]
) -> None:
    broker, out = embedded_broker(PARTITIONS), tmp_path / "new.parquet"
    replayed(recording, broker)
    with recording_into(out, broker) as (process, lines):
        lose(broker, lines)
        broker.set_up()
        assert "WARNING" in (back := lines.get(timeout=60))
        assert "answers again" in back
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
        assert process.stdout is not None
        assert process.stdout.read() == f"{Recording.open(recording).rows} messages in {out}\n"
    assert Recording.open(out).rows == Recording.open(recording).rows


def test_a_recording_that_ends_without_its_broker_is_kept_and_reports_it(
    recording: Path, tmp_path: Path, embedded_broker: Callable[..., EmbeddedBroker]
) -> None:
    broker, out = embedded_broker(PARTITIONS), tmp_path / "new.parquet"
    replayed(recording, broker)
    with recording_into(out, broker) as (process, lines):
        lose(broker, lines)
        process.send_signal(signal.SIGTERM)
        assert "record again once it is back" in until(lines, "still away")
        assert process.wait(60) == 0
        assert process.stdout is not None
        assert "lacks what the broker did not give" in process.stdout.read()
    assert Recording.open(out).rows > 0
