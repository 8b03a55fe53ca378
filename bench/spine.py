"""What a core carries: GPU-ticks per second through the worker, against two rivals run beside it.

Goal: one process decodes, profiles, watches, forecasts and decides for 100,000 GPUs at one tick a
second per core, because one Kafka message is one node's tick (8 GPUs x 48 metrics). Two loads, one after the other:
only these messages, which is what the rivals are given; and those of hosts and workloads beside them. Rows, on the same
broker in the same run:

1. ``flyball worker``, the real command: from the telemetry topic to decisions, until all offsets are committed;
   and the engine alone, fed the same ticks from memory.
2. One message per metric through stock Faust, with an agent that only keeps the newest value in a dict.
3. The limit: a bare confluent-kafka ``consume(500)`` loop over the same messages, and the same with decoding.

"Per core" is per second of CPU time of the measured process, all its threads included; broker, sender and the other
contenders are other processes. Repeats are interleaved, so drift of the machine hits all rows. A row counts only when
everything sent was seen exactly once.
"""

import argparse
import json
import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for `bench`, in the child processes too

from bench.common.contest import Contest
from bench.common.load import SEED, SIZES, Frames, Size
from bench.common.report import as_json, machine_line, show, wide_console
from tests.brokers import kafka
from tests.brokers.base import Broker
from tests.brokers.embedded import EmbeddedBroker
from tests.brokers.kafka import RealKafka

from flyball_contracts.errors import FlyballError

BESIDE: dict[Frames, str] = {"gpu": "", "all": " and messages of hosts and workloads beside them"}


def run(
    broker: Broker, size: Size, seed: int, frames: Frames, *, name: str, progress: Progress
) -> tuple[Contest, dict[str, Any]]:
    """One contest on one broker: the rows, and what they are about."""
    task = progress.add_task(name, total=size.repeats)

    def describe(what: str) -> None:
        progress.update(task, description=f"{name}: {what}")

    embedded = isinstance(broker, EmbeddedBroker)
    with Contest(broker, size, seed, embedded=embedded, progress=describe, frames=frames) as contest:
        for _ in range(size.repeats):
            contest.segment()
            progress.advance(task)
    progress.remove_task(task)
    about: dict[str, Any] = {
        "broker": name,
        "seed": seed,
        "gpus": contest.gpus,
        "nodes": contest.nodes,
        "size": size._asdict(),
        "frames": frames,
        "published": contest.published,
    }
    return contest, about


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark; the exit status is 0 when every row counts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true", help="under a minute: fewer and shorter repeats")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write all figures there")
    parser.add_argument("--kafka", action="store_true", help="then the same on a real Apache Kafka")
    parser.add_argument("--frames", choices=["gpu", "all"], help="only one of the two loads (--quick: gpu)")
    parser.add_argument("--seed", type=int, default=SEED, help="seed of the simulated fleet (default: %(default)s)")
    parser.add_argument("--size", choices=sorted(SIZES), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    size = SIZES[options.size or ("quick" if options.quick else "full")]
    console = wide_console(150)
    brokers: list[tuple[str, Callable[[], Any]]] = [("embedded broker", lambda: EmbeddedBroker({}))]
    if options.kafka:
        reason = kafka.missing()
        if reason is None:
            brokers.append(("Apache Kafka", partial(RealKafka, as_in_production=True)))
        else:
            console.print(f"No real Kafka: {reason}")
    loads: list[Frames] = [options.frames] if options.frames else ["gpu"] if options.quick else ["gpu", "all"]
    results: list[dict[str, Any]] = []
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TextColumn("{task.completed}/{task.total}"))
    bar = Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True)
    valid = True
    for (name, make), frames in product(brokers, loads):
        try:
            with ExitStack() as stack:
                if sys.stderr.isatty():
                    stack.enter_context(bar)
                broker = stack.enter_context(make())
                contest, about = run(broker, size, options.seed, frames, name=name, progress=bar)
        except FlyballError as error:
            console.print(f"[red]{name}: {error}[/]")
            return 1
        title = (
            f"Spine on the {name}: {contest.nodes} nodes x 8 GPUs x 48 metrics{BESIDE[frames]}, "
            f"{size.partitions} partitions; "
            f"median (range) of {size.repeats}; {sum(contest.published.values()):,} insights and decisions published"
        )
        show(console, contest.rows, "worker", title)
        results.append(as_json(contest.rows, "worker", about))
        console.print(machine_line(results[-1]["machine"]))
        valid = valid and not any(row.problem for row in contest.rows)
    if options.json is not None:
        options.json.write_text(json.dumps({"benchmark": "spine", "runs": results}, indent=1) + "\n")
        console.print(f"Figures: {options.json}")
    return 0 if valid else 1


if __name__ == "__main__":
    sys.exit(main())
