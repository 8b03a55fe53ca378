from errno import ENOSPC
from pathlib import Path

import pytest

from flyball_streams.worker.watchdog import STUCK, Watchdog

LIMIT_S = 60.0


class Worker:
    def __init__(self) -> None:
        self.is_joined, self.count, self.waiting = True, 0, 0

    def joined(self) -> bool:
        return self.is_joined

    def progress(self) -> int:
        return self.count

    def lag(self) -> int:
        return self.waiting

    def stacks(self) -> str:
        return "thread lanes"


class IncidentHarness:
    """A watchdog over a made-up worker and clock."""

    def __init__(self, folder: Path) -> None:
        self.worker = Worker()
        self.health = folder / "health"
        self.ended: list[int] = []
        self.dog = Watchdog(self.worker, LIMIT_S, self.health, now_s=0.0, end=self.ended.append)

    def beats(self, now_s: float) -> bool:
        """Whether a look at that time touches the health file."""
        self.health.unlink(missing_ok=True)
        self.dog.look(now_s)
        return self.health.exists()


@pytest.fixture
def harness(tmp_path: Path) -> IncidentHarness:
    return IncidentHarness(tmp_path)


def test_idle_is_healthy(harness: IncidentHarness) -> None:
    assert all(harness.beats(float(t)) for t in range(0, 500, 2))
    assert not harness.ended


def test_progress_is_healthy_however_long_the_queue(harness: IncidentHarness) -> None:
    harness.worker.waiting = 10_000
    for t in range(0, 500, 2):
        harness.worker.count += 1
        assert harness.beats(float(t))
    assert not harness.ended


def test_lag_without_progress_ends_the_worker(harness: IncidentHarness, caplog: pytest.LogCaptureFixture) -> None:
    assert harness.beats(10.0)
    harness.worker.waiting = 7
    assert not harness.beats(12.0)
    assert not harness.beats(10.0 + LIMIT_S)
    assert not harness.ended
    assert not harness.beats(10.1 + LIMIT_S)
    assert harness.ended == [STUCK]
    assert "7 messages waited" in caplog.text
    assert "thread lanes" in caplog.text


def test_progress_in_time_saves_it(harness: IncidentHarness) -> None:
    harness.worker.waiting = 7
    assert harness.beats(0.0)  # the first look
    assert not harness.beats(LIMIT_S - 1.0)
    harness.worker.count += 1
    assert harness.beats(LIMIT_S)
    assert not harness.beats(2 * LIMIT_S)
    assert not harness.ended


def test_not_healthy_before_it_has_partitions(harness: IncidentHarness) -> None:
    harness.worker.is_joined = False
    assert not harness.beats(2.0)
    harness.worker.is_joined = True
    assert harness.beats(4.0)


def test_no_partitions_for_too_long_ends_the_worker(harness: IncidentHarness, caplog: pytest.LogCaptureFixture) -> None:
    assert harness.beats(100.0)
    harness.worker.is_joined = False  # a rebalance that never ends leaves a process alive and idle for ever
    assert not harness.beats(100.0 + LIMIT_S)
    assert not harness.ended
    assert not harness.beats(100.1 + LIMIT_S)
    assert harness.ended == [STUCK]
    assert "no partitions" in caplog.text


def test_a_worker_whose_stacks_cannot_be_read_ends_all_the_same(
    harness: IncidentHarness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def on_a_full_disk() -> str:
        raise OSError(ENOSPC, "No space left on device")

    monkeypatch.setattr(harness.worker, "stacks", on_a_full_disk)
    assert harness.beats(10.0)
    harness.worker.waiting = 7
    with pytest.raises(OSError, match="No space left"):
        harness.beats(10.1 + LIMIT_S)
    assert harness.ended == [STUCK]
    assert "7 messages waited" in caplog.text


def test_needs_no_health_file() -> None:
    Watchdog(Worker(), LIMIT_S, None, now_s=0.0).look(1.0)


def test_a_health_file_that_cannot_be_touched_ends_nothing_and_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder, worker, ended = tmp_path / "gone", Worker(), list[int]()
    dog = Watchdog(worker, LIMIT_S, folder / "health", now_s=0.0, end=ended.append)
    for t in (1.0, 2.0):
        dog.look(t)
    (line,) = [record.getMessage() for record in caplog.records]
    assert f"health file {folder / 'health'} cannot be touched: No such file or directory" in line
    folder.mkdir()
    dog.look(3.0)
    assert (folder / "health").exists()
    worker.waiting = 7
    dog.look(3.1 + LIMIT_S)
    assert ended == [STUCK]
