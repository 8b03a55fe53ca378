"""The disk spool beside SQLite in WAL mode."""

import os
import shutil
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol

from flyball_collectors.spool import Spool

FRAME_BYTES = 1_800
BATCH = 500
GOAL_PER_S = 50_000  # frames replayed
ROUNDS, RECORDS = 9, 30_000
QUICK_ROUNDS, QUICK_RECORDS = 3, 10_000


class Queue(Protocol):
    """What is measured: a queue of records on disk."""

    def append(self, record: bytes) -> object:
        """Add one record."""
        ...

    def take(self) -> int:
        """Read the next records, forget them, and return how many there were."""
        ...

    def close(self) -> None:
        """Let go of the files."""
        ...


class OurSpool:
    """The agent's spool, with room for all records of a round."""

    def __init__(self, folder: Path) -> None:
        self._spool = Spool(folder / "spool", 1 << 30)

    def append(self, record: bytes) -> object:
        """Add one record."""
        return self._spool.append(record)

    def take(self) -> int:
        """Read the next records, forget them, and return how many there were."""
        records = self._spool.peek(BATCH)
        if records:
            self._spool.ack(records[-1].id)
        return len(records)

    def close(self) -> None:
        """Let go of the files."""
        self._spool.close()


class SqliteWal:
    """A table in a SQLite database in WAL mode, the way the queues on top of SQLite use it."""

    def __init__(self, folder: Path) -> None:
        self._db = sqlite3.connect(folder / "queue.db", isolation_level=None)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=NORMAL")
        self._db.execute("CREATE TABLE queue (id INTEGER PRIMARY KEY, record BLOB NOT NULL)")

    def append(self, record: bytes) -> object:
        """Add one record."""
        return self._db.execute("INSERT INTO queue (record) VALUES (?)", (record,))

    def take(self) -> int:
        """Read the next records, forget them, and return how many there were."""
        rows = self._db.execute("SELECT id, record FROM queue ORDER BY id LIMIT ?", (BATCH,)).fetchall()
        if rows:
            self._db.execute("DELETE FROM queue WHERE id <= ?", (rows[-1][0],))
        return len(rows)

    def close(self) -> None:
        """Let go of the files."""
        self._db.close()


class Rate(NamedTuple):
    """Records per second over the rounds."""

    median: float
    least: float
    most: float


def rate(values: list[float]) -> Rate:
    """Median and spread."""
    return Rate(statistics.median(values), min(values), max(values))


def round_of(make: Callable[[Path], Queue], folder: Path, frames: list[bytes]) -> tuple[float, float]:
    """Append all frames, then replay them, in a fresh folder; records per second of both."""
    place = Path(tempfile.mkdtemp(prefix="flyball-bench-", dir=folder))
    try:
        queue = make(place)
        start = time.perf_counter()
        for frame in frames:
            queue.append(frame)
        appended = time.perf_counter()
        count = 0
        while taken := queue.take():
            count += taken
        replayed = time.perf_counter()
        queue.close()
        if count != len(frames):
            raise AssertionError(f"{len(frames)} records went in and {count} came out")
        return len(frames) / (appended - start), len(frames) / (replayed - appended)
    finally:
        shutil.rmtree(place)


def spool(folder: Path, *, rounds: int, records: int) -> dict[str, dict[str, Rate]]:
    """Append and replay rates of the spool and of SQLite."""
    frames = [os.urandom(FRAME_BYTES) for _ in range(256)]
    frames = [frames[i % len(frames)] for i in range(records)]
    peers: dict[str, Callable[[Path], Queue]] = {"spool": OurSpool, "sqlite_wal": SqliteWal}
    measured: dict[str, list[tuple[float, float]]] = {name: [] for name in peers}
    for number in range(rounds):
        for name in list(peers)[:: 1 if number % 2 else -1]:
            measured[name].append(round_of(peers[name], folder, frames))
    return {
        name: {"append": rate([a for a, _ in rounds_]), "replay": rate([r for _, r in rounds_])}
        for name, rounds_ in measured.items()
    }


def show(results: dict[str, dict[str, Rate]]) -> None:
    """A table for people."""
    for what in ("append", "replay"):
        for name, rates in results.items():
            one = rates[what]
            print(f"{what:7} {name:11} {one.median:10,.0f} records/s  ({one.least:,.0f} to {one.most:,.0f})")
        ratio = results["spool"][what].median / results["sqlite_wal"][what].median
        print(f"{what:7} ratio       {ratio:10.1f}")
    reached = results["spool"]["replay"].median / GOAL_PER_S
    print(f"goal: {GOAL_PER_S:,} frames/s replayed; reached {reached:.1f} times")
