"""What the agent costs and what it can take, measured beside its peers in the same run.

    python bench/agent.py spool            the disk spool, beside SQLite in WAL mode
    python bench/agent.py spool --quick --json
    python bench/agent.py gpus [--quick]   reading 8 and 72 GPUs, beside the same calls through nvidia-ml-py
    python bench/agent.py soak [--quick]   whether memory stays flat: 1800 ticks of 8 GPUs in 90 s instead of 30 min

Parts: ``spool`` appends and replays telemetry frames of 8 GPUs (1.8 kB). Both sides promise the same: no record is
lost by a kill once it is appended, each append on its own; replay takes 500 records at a time and forgets them. SQLite
(``synchronous=NORMAL``) syncs at its checkpoints, the spool each half second. Rounds alternate; medians are shown with
the least and the most. The folder is under ``--folder``, by default the system's for temporary files.

``gpus`` and ``soak`` run against a stand-in for NVML that answers at once: they tell what the agent costs, not the
driver. Every tick reads the full set, the details too (by default they come each 10 s), with 10 new samples in the
rings of power and utilisation, and sends it to an embedded broker in another process. Time is CPU time of the whole
process, all threads included. dcgm-exporter's memory, for comparison: a median of 467 to 484 MiB on nodes of 1 to 8
GPUs (as published, pytorch/ci-infra issue 1011; not measured here).
"""

import argparse
import json
import os
import shutil
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for `bench` and `tests`

from bench import _gpus

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


GOALS = {8: (0.005, 60.0), 72: (0.02, None)}  # share of a core, MiB
GOAL_READY_S = 1.0
QUICK_TICKS, TICKS = 15, 60
SOAK_TICKS, QUICK_SOAK_TICKS, SOAK_PERIOD_S = 1_800, 300, 0.05


def gpus(*, quick: bool) -> dict[str, list[dict[str, float]]]:
    """Cost of reading 8 and 72 GPUs: of one read beside nvidia-ml-py's, and of the agent at one tick a second."""
    rounds = QUICK_ROUNDS if quick else ROUNDS
    ticks = QUICK_TICKS if quick else TICKS
    reads = [_gpus.reads(count, rounds=rounds, passes=5) for count in GOALS]
    agents = [_gpus.agent(count, ticks=ticks, period_s=1.0) for count in GOALS]
    return {"reads": [one._asdict() for one in reads], "agent": [one._asdict() for one in agents]}


def soak(*, quick: bool) -> dict[str, list[dict[str, float]]]:
    """Memory of the agent over many ticks."""
    ticks = QUICK_SOAK_TICKS if quick else SOAK_TICKS
    return {"agent": [_gpus.agent(8, ticks=ticks, period_s=SOAK_PERIOD_S)._asdict()]}


def show_gpus(results: dict[str, list[dict[str, float]]]) -> None:
    """Tables for people."""
    for one in results.get("reads", []):
        ratio = one["plain_ms"] / one["ours_ms"]
        print(
            f"one read of {one['gpus']:2} GPUs: {one['ours_ms']:7.2f} ms, nvidia-ml-py {one['plain_ms']:7.2f} ms, "
            f"{ratio:.1f} times as much (medians, CPU)"
        )
    for one in results["agent"]:
        share, mib = GOALS[int(one["gpus"])]
        print(
            f"agent, {one['gpus']:2} GPUs, {one['ticks']} ticks of {one['period_s']:g} s: {100 * one['share']:.2f} % "
            f"of a core at 1 Hz (goal {100 * share:g} %), RSS {one['rss_first_mib']:.1f} then {one['rss_mib']:.1f} MiB"
            + (f" (goal {mib:g} MiB)" if mib else "")
        )
        print(
            f"  ready, with the first record queued, after {one['ready_s']:.2f} s, {one['ready_cpu_s']:.2f} s of it "
            f"CPU (goal {GOAL_READY_S:g} s)"
        )


def main() -> None:
    """Run a part and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["spool", "gpus", "soak"], nargs="?", default="spool")
    parser.add_argument("--quick", action="store_true", help="fewer rounds of fewer records")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--folder", type=Path, default=None, help="a folder on the disk to be measured")
    arguments = parser.parse_args()
    if arguments.part != "spool":
        costs = (gpus if arguments.part == "gpus" else soak)(quick=arguments.quick)
        if arguments.json:
            print(json.dumps({"part": arguments.part, **costs}, indent=2))
        else:
            show_gpus(costs)
        return
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
