"""Anomalies of devices in the simulated fleet: false alarms while all is well, and which injected faults are found.

    python bench/anomaly.py [--quick] [--json PATH] [--data PATH]

The default fleet of the demo, without its failing and its straggling GPU, goes through the engine at the partitions of
production: checkpoints, bursts, notebooks, and jobs that start and end. ``alarms`` are anomalies of any detector per
GPU-day, from cold and after the first hour. Then one fault at a time is put into the frames of one GPU for ten minutes;
it is found when the GPU is named within two minutes. ``record ratio`` is the detector before this one: each series
against its own largest residuals, told at a score of 0.8, on the same frames. No public trace has labelled faults of
GPUs, so ``--data`` is not read.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for `bench`

from bench import _record_ratio as record_ratio
from bench._report import machine

from flyball_contracts.cloudevents import header
from flyball_contracts.codec import Message, decode_record, frame_message
from flyball_contracts.config import FleetConfig, WorkerConfig
from flyball_contracts.frame import Frame, decode_frames, make_frame
from flyball_contracts.metrics import GPU
from flyball_contracts.partitioner import partition_of
from flyball_contracts.records import Anomaly
from flyball_contracts.topics import TELEMETRY, TOPICS
from flyball_models import bucket
from flyball_simulator import Fleet
from flyball_streams.engine import Engine, Incoming
from flyball_streams.engine.node.cell import GPU_WATCHED

START_NS = 1_750_000_000 * 1_000_000_000
PARTITIONS = {name: topic.partitions for name, topic in TOPICS.items()}
FAULT_S, SOON_S = 600.0, 120.0
OLD_LEAST = 0.8
Block = NDArray[np.float32]


class Fault(NamedTuple):
    """What becomes of the row of one GPU, given the seconds since the fault began."""

    name: str
    change: Callable[[Block, float], None]


def _added(key: str, value: float) -> Callable[[Block, float], None]:
    column = GPU.column(key)

    def change(row: Block, since_s: float) -> None:
        del since_s
        row[column] += value

    return change


def _times(key: str, factor: float) -> Callable[[Block, float], None]:
    column = GPU.column(key)

    def change(row: Block, since_s: float) -> None:
        del since_s
        row[column] *= factor

    return change


def _leak(row: Block, since_s: float) -> None:
    column = GPU.column("hw.gpu.memory.utilization")
    row[column] = min(1.0, row[column] * 0.4 + since_s / FAULT_S)


def _hang(row: Block, since_s: float) -> None:
    del since_s
    row[GPU.column("hw.gpu.utilization{task=general}")] = 1.0
    row[GPU.column("nvidia.gpu.sm.activity")] = 0.01
    row[GPU.column("hw.power")] *= 0.3


FAULTS = (
    Fault("hot by 20 K", _added("hw.temperature{sensor=gpu}", 20.0)),
    Fault("power at half", _times("hw.power", 0.5)),
    Fault("clock at half", _times("nvidia.gpu.clock.frequency{clock=sm}", 0.5)),
    Fault("hung: busy without work", _hang),
    Fault("corrected errors, 20 a tick", _added("hw.errors{type=corrected}", 20.0)),
    Fault("memory fills", _leak),
)
HELD_BY = ("llm-pretrain", "vision-train", "chat-api", "code-notebooks")


class Alarm(NamedTuple):
    """One anomaly: second of the run and device or node."""

    second: float
    subject: str
    metric: str


class Old:
    """The record ratio on every watched series by itself."""

    def __init__(self, fleet: Fleet) -> None:
        self.names = [d.id for node in fleet.nodes for d in node.devices]
        first = np.cumsum([0, *(len(node.devices) for node in fleet.nodes)]).tolist()
        self.rows = {node.node: slice(a, b) for node, a, b in zip(fleet.nodes, first, first[1:], strict=False)}
        self.columns = [GPU.column(key) for key in GPU_WATCHED]
        self.floors = np.array(list(GPU_WATCHED.values()), np.float32)
        self.state = record_ratio.init(bucket(len(self.names)) * len(self.columns))
        self.x = np.full((bucket(len(self.names)), len(self.columns)), np.nan, np.float32)

    def step(self, frames: list[Frame], second: float) -> Iterator[Alarm]:
        """Alarms of one tick."""
        self.x.fill(np.nan)
        for frame in frames:
            self.x[self.rows[frame.node]] = frame.values[:, self.columns]
        hour = np.array(int(second // 3600) % 24, np.int32)
        mask = np.ones(self.x.size, bool)
        self.state, out = record_ratio.step(self.state, self.x.reshape(-1), mask, hour)
        score, expected = (np.asarray(a).reshape(self.x.shape) for a in out)
        with np.errstate(invalid="ignore"):
            loud = (score >= OLD_LEAST) & (np.abs(self.x - expected) >= self.floors)
        for slot in np.flatnonzero(loud.any(axis=1)).tolist():
            yield Alarm(second, self.names[slot], list(GPU_WATCHED)[int(score[slot].argmax())])


def settings(seed: int, tick_s: float) -> FleetConfig:
    """The fleet of the demo without its sick GPUs."""
    return msgspec.structs.replace(FleetConfig(), seed=seed, tick_s=tick_s, failing=(), straggling=())


def incoming(message: Message) -> Incoming:
    """A message as a lane gets it."""
    place = message.partition
    if place is None:
        place = partition_of(message.key, PARTITIONS[message.topic])
    return Incoming(message.topic, place, 0, message.key, message.value, message.headers)


def watched(
    config: FleetConfig, ticks: int, sick: tuple[Fault, str, float] | None = None
) -> tuple[dict[str, list[Alarm]], str, int]:
    """Alarms of both detectors, the sick device, and the number of GPUs; ``sick``: fault, workload, second of begin."""
    fleet, engine = Fleet(config, START_NS), Engine(WorkerConfig())
    old, found = Old(fleet), dict[str, list[Alarm]](departure=[], record_ratio=[])
    engine.feed([incoming(m) for m in fleet.messages_at_start()])
    device, node, row = "", "", 0
    for tick in range(ticks):
        second = tick * config.tick_s
        messages = fleet.tick(tick)
        since_s = second - sick[2] if sick is not None else -1.0
        if sick is not None and since_s >= 0 and not device:
            node, row, device = _held(fleet, sick[1])
        if sick is not None and 0 <= since_s < FAULT_S:
            messages = [_with(m, node, row, sick[0], since_s) for m in messages]
        frames = decode_frames([m.value or b"" for m in messages if m.topic == TELEMETRY.name])[0]
        for batch in frames:
            if batch.schema == GPU.schema:
                found["record_ratio"] += old.step(batch.frames, second)
        for made in engine.feed([incoming(m) for m in messages]):
            if header(made.headers, "ce_type") == "io.flyball.Anomaly":
                anomaly = decode_record(made.topic, made.value, made.headers)
                if isinstance(anomaly, Anomaly):
                    metric = anomaly.evidence[0].name if anomaly.evidence else anomaly.detector
                    found["departure"].append(Alarm(second, anomaly.subject, metric))
    return found, device, sum(len(n.devices) for n in fleet.nodes)


def _held(fleet: Fleet, workload: str) -> tuple[str, int, str]:
    return next(
        (node.node, a.devices[0], node.devices[a.devices[0]].id)
        for node in fleet.nodes
        for a in node.allocations
        if a.workload == workload
    )


def _with(message: Message, node: str, row: int, fault: Fault, since_s: float) -> Message:
    if message.topic != TELEMETRY.name or message.key != node.encode():
        return message
    frame = decode_frames([message.value or b""])[0][0].frames[0]
    if frame.schema != GPU.schema:
        return message
    values = frame.values.copy()
    fault.change(values[row], since_s)
    kept = {f: getattr(frame, f) for f in frame.__struct_fields__ if f not in ("rows", "block")}
    return frame_message(make_frame(values, **kept))


def clean(seeds: range, hours: float, tick_s: float) -> Iterator[dict[str, Any]]:
    """False alarms per GPU-day."""
    for seed in seeds:
        ticks = round(hours * 3600 / tick_s)
        found, _, gpus = watched(settings(seed, tick_s), ticks)
        for detector, alarms in found.items():
            late = [a for a in alarms if a.second >= 3600]
            yield {
                "part": "clean",
                "detector": detector,
                "seed": seed,
                "tick_s": tick_s,
                "gpu_days": gpus * hours / 24,
                "alarms": len(alarms),
                "alarms_per_gpu_day": len(alarms) / (gpus * hours / 24),
                "after_1h_per_gpu_day": len(late) / (gpus * (hours - 1) / 24) if hours > 1 else None,
            }


def faulty(seed: int, begin_s: float, tick_s: float, workloads: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """Which faults are found, how soon, and who else is named meanwhile."""
    for fault in FAULTS:
        for workload in workloads:
            ticks = round((begin_s + SOON_S) / tick_s)
            found, device, _ = watched(settings(seed, tick_s), ticks, (fault, workload, begin_s))
            for detector, alarms in found.items():
                mine = [a.second - begin_s for a in alarms if a.subject == device and a.second >= begin_s]
                others = [a for a in alarms if a.subject != device and a.second >= begin_s]
                yield {
                    "part": "faults",
                    "detector": detector,
                    "fault": fault.name,
                    "workload": workload,
                    "found": bool(mine),
                    "delay_s": min(mine) if mine else None,
                    "others_named": len({a.subject for a in others}),
                }


def main() -> None:
    """Measure, print and keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one seed, ticks of 10 s, two workloads")
    parser.add_argument("--data", type=Path, help="not read")
    parser.add_argument("--json", type=Path, help="write all figures here")
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    if args.quick:
        rows = [*clean(range(1, 2), 1.5, 10.0), *faulty(1, 3900.0, 10.0, HELD_BY[:2])]
    else:
        rows = [row for tick_s in (1.0, 10.0) for row in clean(range(1, 1 + args.seeds), 3.0, tick_s)]
        rows += faulty(1, 3900.0, 10.0, HELD_BY)
    first = Table(title="Clean fleet: alarms per GPU-day")
    for title in ("detector", "tick s", "seed", "alarms", "per GPU-day", "after 1 h"):
        first.add_column(title)
    for r in rows:
        if r["part"] == "clean":
            late = "" if r["after_1h_per_gpu_day"] is None else f"{r['after_1h_per_gpu_day']:.2f}"
            cells = (r["seed"], r["alarms"], f"{r['alarms_per_gpu_day']:.2f}", late)
            first.add_row(r["detector"], f"{r['tick_s']:g}", *map(str, cells))
    second = Table(title="Injected faults: found within 2 min (delay s), and how many others were named")
    for title in ("fault", "workload", "departure", "others", "record ratio", "others"):
        second.add_column(title)
    told = {(r["detector"], r["fault"], r["workload"]): r for r in rows if r["part"] == "faults"}
    for fault, workload in dict.fromkeys((f, w) for _, f, w in told):
        both = [told[d, fault, workload] for d in ("departure", "record_ratio")]
        shown = [c for r in both for c in (f"{r['delay_s']:.0f}" if r["found"] else "no", str(r["others_named"]))]
        second.add_row(fault, workload, *shown)
    console = Console(width=120)
    console.print(first)
    console.print(second)
    if args.json:
        args.json.write_text(json.dumps({"about": machine(), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
