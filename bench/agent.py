"""What the agent costs and what it can take, measured beside its peers in the same run.

    python bench/agent.py spool            the disk spool, beside SQLite in WAL mode
    python bench/agent.py spool --quick --json

Parts: ``spool`` appends and replays telemetry frames of 8 GPUs (1.8 kB). Both sides promise the same: no record is
lost by a kill once it is appended, each append on its own; replay takes 500 records at a time and forgets them. SQLite
(``synchronous=NORMAL``) syncs at its checkpoints, the spool each half second. Rounds alternate; medians are shown with
the least and the most. The folder is under ``--folder``, by default the system's for temporary files.
"""

import argparse
import json
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


def main() -> None:
    """Run a part and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["spool"], nargs="?", default="spool")
    parser.add_argument("--quick", action="store_true", help="fewer rounds of fewer records")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--folder", type=Path, default=None, help="a folder on the disk to be measured")
    arguments = parser.parse_args()
    rounds, records = (QUICK_ROUNDS, QUICK_RECORDS) if arguments.quick else (ROUNDS, RECORDS)
    results = spool(arguments.folder or Path(tempfile.gettempdir()), rounds=rounds, records=records)
    if arguments.json:
        plain = {name: {what: one._asdict() for what, one in rates.items()} for name, rates in results.items()}
        about = {"records": records, "rounds": rounds, "frame_bytes": FRAME_BYTES}
        print(json.dumps({"part": "spool", **about, "records_per_s": plain}, indent=2))
    else:
        show(results)


if __name__ == "__main__":
    main()
