"""How long it takes from the last frame of a tick to the decision on its topic, stage by stage, on a real Kafka.

A seeded fleet sends a tick a second, as agents do and at their pace. The real ``flyball worker`` command is another
process. A reader beside it notes when the last node lane's demand, the last workload lane's proposals and the decisions
of a tick have arrived. All times are of one clock, from the moment in which the last frame of a tick was given to the
sender's Kafka client, so its linger counts, and so does the fetch of the reader. Ticks without a decision have no last
stage. Without ``--bootstrap`` each fleet has a broker of its own. Goal for the default fleet: to the decision 60 ms at
p50 and 120 ms at p99; four times as many GPUs stand beside it.
"""

import argparse
import json
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.common.broker import Sender, wait_for
from bench.common.contest import WorkerProcess
from bench.common.load import SEED, START_NS, Load
from bench.common.report import machine, machine_line, wide_console
from confluent_kafka import Consumer, TopicPartition
from tests.brokers.kafka import RealKafka

from flyball_contracts.codec import decode_record
from flyball_contracts.errors import FlyballError, TransportError
from flyball_contracts.ids import NS_PER_S
from flyball_contracts.kafka import consumer_settings
from flyball_contracts.partitioner import partition_of
from flyball_contracts.records import Decision, DemandTick, ProposalTick
from flyball_contracts.topics import DECISIONS, DEMAND, PROPOSALS, TELEMETRY, TOPICS

STAGES = ("node lane", "workload lane", "decision")
GOAL_MS = {"p50": 60.0, "p99": 120.0}
PERIOD_S = 1.0
WARM_TICKS = 25
"""The grace of all lanes, and some ticks for what is compiled late."""


class Size(NamedTuple):
    """``copies`` of the default fleet (192 GPUs each), and the measured ``ticks``.

    ``paced`` ticks come before at the same pace: a fresh broker compiles its code in its first minute, on our cores.
    """

    copies: int
    paced: int
    ticks: int


SIZES = {"quick": (Size(1, 5, 30),), "full": (Size(1, 60, 240), Size(4, 60, 240))}


class Arrivals:
    """When what the lanes say about each tick has arrived, by stage."""

    def __init__(self, bootstrap: str, node_lanes: int, workload_lanes: int) -> None:
        self.expected = {"node lane": node_lanes, "workload lane": workload_lanes}
        self.sources: dict[tuple[str, int], set[str]] = {}
        self.last_s: dict[tuple[str, int], float] = {}
        settings = consumer_settings(bootstrap, group="bench-latency", client_id="bench-latency")
        self._consumer = Consumer(settings)
        known = self._consumer.list_topics(timeout=10.0).topics
        topics = (DEMAND.name, PROPOSALS.name, DECISIONS.name)
        self._consumer.assign([TopicPartition(t, p, 0) for t in topics for p in known[t].partitions])
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="arrivals", daemon=True)
        self._thread.start()

    def whole_s(self, stage: str, tick: int) -> float | None:
        """When a stage of a tick was whole, ``None`` when it never was."""
        at = self.last_s.get((stage, tick))
        return at if len(self.sources.get((stage, tick), ())) >= self.expected.get(stage, 1) else None

    def close(self) -> None:
        """Stop reading."""
        self._stop.set()
        self._thread.join(5.0)
        self._consumer.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            messages = self._consumer.consume(1, 0.1)
            now_s = time.monotonic()
            for message in messages:
                if message.error() is None:
                    headers = cast("list[tuple[str, bytes | None]]", message.headers() or [])
                    self._note(decode_record(message.topic() or "", message.value(), headers), now_s)

    def _note(self, record: Any, now_s: float) -> None:
        if isinstance(record, DemandTick) and record.part >= record.parts - 1:
            place = "node lane", record.tick.index
            source = f"{record.source} to {record.partition}"
        elif isinstance(record, ProposalTick) and record.closes:
            place, source = ("workload lane", record.tick.index), record.source
        elif isinstance(record, Decision):
            place, source = ("decision", record.time_ns // round(PERIOD_S * NS_PER_S) - 1), "cell lane"
        else:
            return
        self.sources.setdefault(place, set()).add(source)
        self.last_s[place] = now_s


def measure(bootstrap: str, size: Size, seed: int, console: Console) -> dict[str, Any]:
    """Milliseconds from the last frame of each tick to each stage, the spread of the sending, and the worker's CPU."""
    counts = {name: topic.partitions for name, topic in TOPICS.items()}
    load = Load(size.copies, seed)
    start, ticks = load.start(), load.ticks(WARM_TICKS + size.paced + size.ticks)
    first = START_NS // round(PERIOD_S * NS_PER_S)
    lanes = {partition_of(m.key, counts[TELEMETRY.name]) for m in ticks[0] if m.topic == TELEMETRY.name}
    sender = Sender(bootstrap)
    sender.send(start)
    sender.flush()
    sent_s: dict[int, float] = {}
    cpu_s = 0.0
    with ExitStack() as stack:
        worker = stack.enter_context(WorkerProcess(bootstrap, embedded=False))
        arrivals = Arrivals(bootstrap, len(lanes) * counts[DEMAND.name], counts[DEMAND.name])
        stack.callback(arrivals.close)
        console.print(f"{load.gpus} GPUs, {len(lanes)} node lanes; the worker compiles its models")
        sender.send(ticks[0])
        sender.flush()
        for i in range(1, WARM_TICKS):
            sender.send(ticks[i])
            sender.flush()
        wait_for("the first tick", lambda: worker.alive() and arrivals.whole_s("workload lane", first) is not None)
        next_s = time.monotonic() + PERIOD_S
        for i in range(WARM_TICKS, len(ticks)):
            time.sleep(max(0.0, next_s - time.monotonic()))
            next_s += PERIOD_S
            if i == WARM_TICKS + size.paced:
                cpu_s = worker.cpu_s()
            sender.send(ticks[i])
            if i >= WARM_TICKS + size.paced:
                sent_s[first + i] = time.monotonic()
        sender.flush()
        last = max(sent_s)
        wait_for("the last tick", lambda: worker.alive() and arrivals.whole_s("workload lane", last) is not None)
        time.sleep(PERIOD_S)
        cpu_s = worker.cpu_s() - cpu_s
        found = {
            stage: [(at - sent) * 1e3 for tick, sent in sent_s.items() if (at := arrivals.whole_s(stage, tick))]
            for stage in STAGES
        }
    if not found["decision"]:
        raise TransportError("no tick led to a decision; take another --seed or more ticks")
    return {
        "gpus": load.gpus,
        "ticks": size.ticks,
        "cpu_ms_per_tick": cpu_s * 1e3 / size.ticks,
        "stages": {stage: _spread(values) for stage, values in found.items()},
    }


def _spread(values_ms: list[float]) -> dict[str, float]:
    ms = np.array(values_ms)
    p50, p90, p99 = np.percentile(ms, [50, 90, 99])
    spread = {"p50": p50, "p90": p90, "p99": p99, "least": ms.min(), "most": ms.max()}
    return {"ticks": float(len(ms)), **{name: float(value) for name, value in spread.items()}}


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark; the exit status is 0 when the goal is reached."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true", help="the default fleet alone, for half a minute")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write all figures there")
    parser.add_argument("--bootstrap", help="a Kafka with our topics, empty, for the default fleet alone")
    parser.add_argument("--seed", type=int, default=SEED, help="seed of the simulated fleet (default: %(default)s)")
    options = parser.parse_args(arguments)
    console = wide_console()
    runs: list[dict[str, Any]] = []
    try:
        sizes = SIZES["quick" if options.quick else "full"]
        for size in sizes[:1] if options.bootstrap else sizes:
            runs.append(_one(options.bootstrap, size, options.seed, console))
            _show(runs[-1], console)
    except FlyballError as error:
        console.print(f"[red]{error}[/]")
        return 1
    console.print(machine_line(machine()))
    if options.json is not None:
        options.json.write_text(
            json.dumps({"benchmark": "latency", "machine": machine(), "runs": runs}, indent=1) + "\n"
        )
        console.print(f"Figures: {options.json}")
    decided = runs[0]["stages"]["decision"]
    return 0 if all(decided[name] <= goal for name, goal in GOAL_MS.items()) else 1


def _one(bootstrap: str | None, size: Size, seed: int, console: Console) -> dict[str, Any]:
    with ExitStack() as stack:
        if bootstrap is None:
            counts = {name: topic.partitions for name, topic in TOPICS.items()}
            bootstrap = stack.enter_context(RealKafka(counts, as_in_production=True)).bootstrap
        return measure(bootstrap, size, seed, console)


def _show(found: dict[str, Any], console: Console) -> None:
    table = Table(title=f"From the last frame of a tick, in ms: {found['gpus']} GPUs, {found['ticks']} ticks of 1 s")
    for column in ("until the last of", "ticks", "p50", "p90", "p99", "least", "most"):
        table.add_column(column, justify="left" if column.startswith("until") else "right")
    for stage, row in found["stages"].items():
        table.add_row(stage, *(f"{row[c]:.0f}" for c in ("ticks", "p50", "p90", "p99", "least", "most")))
    console.print(table)
    console.print(f"worker: {found['cpu_ms_per_tick']:.1f} ms of CPU a tick")


if __name__ == "__main__":
    sys.exit(main())
