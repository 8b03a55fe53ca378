"""What one tick of the engine costs, lane by lane, and how that grows with the fleet.

The engine alone, fed from memory: no broker, no client, no other process; its own is set up as a worker's. A seeded
fleet of 192 GPUs is spread over the topics' default partitions, as a small fleet is in production, and larger ones over
the same. Times are of the process's CPU. Goal: 8 ms for 192 GPUs.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as `flyball worker` does, before NumPy is imported

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.common.load import SEED, Load
from bench.common.report import machine, machine_line, wide_console

from flyball_contracts.codec import Message
from flyball_contracts.config import WorkerConfig
from flyball_contracts.partitioner import partition_of
from flyball_contracts.topics import DECISIONS, TOPICS
from flyball_streams.engine import Engine, Incoming
from flyball_streams.worker.process import calm_collector, compute_in_this_thread

GOAL_MS = 8.0
GOAL_GPUS = 192
WARM_TICKS = 72
"""The grace of all lanes, and what is compiled at the first use, which is that of a profile after a minute."""
LANES: tuple[str, ...] = ("node", "workload", "cell")


class Size(NamedTuple):
    """``copies`` of the default fleet (192 GPUs each), one run for each, and the measured ``ticks``."""

    copies: tuple[int, ...]
    ticks: int


SIZES = {"quick": Size((1, 8), 120), "full": Size((1, 2, 4, 8, 16, 32), 600)}


class Clocked:
    """The engine with a stopwatch at the doors of its lanes."""

    def __init__(self) -> None:
        self.engine = Engine(WorkerConfig())
        self.spent_s = dict.fromkeys(LANES, 0.0)
        for lanes, name in ((self.engine.workloads, "workload"), (self.engine.cells, "cell")):
            for lane in lanes:
                self._clock(lane, name)
        self._known = 0

    def feed(self, messages: Sequence[Incoming]) -> list[Message]:
        """Feed the messages of a tick."""
        made = self.engine.feed(messages)
        if len(self.engine.nodes) > self._known:  # node lanes are made when their first message comes
            for lane in list(self.engine.nodes.values())[self._known :]:
                self._clock(lane, "node")
            self._known = len(self.engine.nodes)
        return made

    def _clock(self, lane: Any, name: str) -> None:
        step: Callable[..., Any] = lane.step

        def clocked(*arguments: Any) -> Any:
            begin_s = time.process_time()
            try:
                return step(*arguments)
            finally:
                self.spent_s[name] += time.process_time() - begin_s

        lane.step = clocked


def incoming(messages: Sequence[Message]) -> list[Incoming]:
    """Messages as the client of a worker passes them on; that is not the engine's work."""
    return [
        Incoming(m.topic, partition_of(m.key, TOPICS[m.topic].partitions), 0, m.key, m.value, m.headers)
        for m in messages
    ]


def run(copies: int, ticks: int, seed: int, console: Console) -> dict[str, Any]:
    """Feed some ticks of one fleet; milliseconds of CPU a tick."""
    load, clocked = Load(copies, seed), Clocked()
    clocked.feed(incoming(load.start()))
    for warming in load.ticks(WARM_TICKS):
        clocked.feed(incoming(warming))
    calm_collector()
    taken_ms: list[float] = []
    lanes_ms: dict[str, list[float]] = {name: [] for name in LANES}
    decisions = 0
    shown = track(range(ticks), f"{load.gpus:,} GPUs", console=console, transient=True, disable=not console.is_terminal)
    for _ in shown:
        (messages,) = map(incoming, load.ticks(1))
        before, begin_s = dict(clocked.spent_s), time.process_time()
        made = clocked.feed(messages)
        taken_ms.append(1000.0 * (time.process_time() - begin_s))
        decisions += sum(m.topic == DECISIONS.name for m in made)
        for name in LANES:
            lanes_ms[name].append(1000.0 * (clocked.spent_s[name] - before[name]))
    return {
        "gpus": load.gpus,
        "nodes": load.nodes,
        "ticks": ticks,
        "decisions": decisions,
        "p50_ms": float(np.percentile(taken_ms, 50)),
        "p90_ms": float(np.percentile(taken_ms, 90)),
        "mean_ms": float(np.mean(taken_ms)),
        "most_ms": float(np.max(taken_ms)),
        "lanes_mean_ms": {name: float(np.mean(values)) for name, values in lanes_ms.items()},
    }


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark; the exit status is 0 when the goal was reached."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true", help="under a minute: two fleets, fewer ticks")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write all figures there")
    parser.add_argument("--seed", type=int, default=SEED, help="seed of the simulated fleet (default: %(default)s)")
    options = parser.parse_args(arguments)
    size = SIZES["quick" if options.quick else "full"]
    compute_in_this_thread()
    console = wide_console()
    table = Table(title="CPU time of the engine, ms a tick")
    for heading in ("GPUs", "p50", "p90", "mean", "most", *(f"{name} lanes" for name in LANES), "rest", "us a GPU"):
        table.add_column(heading, justify="right")
    runs = [run(copies, size.ticks, options.seed, Console(stderr=True)) for copies in size.copies]
    for row in runs:
        lanes = [row["lanes_mean_ms"][name] for name in LANES]
        entries = [row["p50_ms"], row["p90_ms"], row["mean_ms"], row["most_ms"], *lanes, row["mean_ms"] - sum(lanes)]
        each_us = 1000.0 * row["mean_ms"] / row["gpus"]
        table.add_row(f"{row['gpus']:,}", *(f"{value:.1f}" for value in entries), f"{each_us:.1f}")
    console.print(table)
    about = machine()
    console.print(machine_line(about))
    if options.json is not None:
        figures = {"benchmark": "tick", "unit": "ms of process CPU time a tick", "seed": options.seed, "runs": runs}
        options.json.write_text(json.dumps({**figures, "machine": about}, indent=1) + "\n")
    reached = all(row["p50_ms"] <= GOAL_MS for row in runs if row["gpus"] == GOAL_GPUS)
    console.print(f"{GOAL_GPUS} GPUs in {GOAL_MS:g} ms at p50: {'reached' if reached else 'not reached'}")
    return 0 if reached else 1


if __name__ == "__main__":
    sys.exit(main())
