"""Step times of whole gangs: slowdowns found and clean gangs named, on generated series and in a fleet.

Generated gangs report once a second, with noise of 1 % that is one of: normal; heavy (Student's t of 3 degrees); with
one step in ten minutes that takes 20 times as long, as with checkpoints; on a drift of 2 % up and down within an hour;
or restless, 1.2 % that remembers a minute. The limit starts from the prior, so all is cold.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flyball_contracts.cloudevents import header
from flyball_contracts.codec import Message, decode_record, frame_message
from flyball_contracts.config import FleetConfig, WorkerConfig
from flyball_contracts.frame import decode_frame, make_frame
from flyball_contracts.metrics import WORKLOAD
from flyball_contracts.records import Anomaly
from flyball_contracts.topics import TELEMETRY
from flyball_models.anomaly import step_time, tail
from flyball_simulator import Fleet
from flyball_streams.engine import Engine, Incoming
from flyball_streams.engine.budget import BUDGET_S, STEPS_SHARE
from flyball_streams.engine.workload.step_times import MOST_LIMIT, NO_PEERS, TAIL

Floats = NDArray[np.float64]
Noise = Callable[[np.random.Generator, int, int], Floats]
STEP = WORKLOAD.column("flyball.workload.step.time")
BEFORE, AFTER = 1800, 600
SLOWER = (0.05, 0.1, 0.2)


def _normal(random: np.random.Generator, t: int, n: int) -> Floats:
    return 0.01 * random.standard_normal((t, n))


def _heavy(random: np.random.Generator, t: int, n: int) -> Floats:
    return 0.01 * random.standard_t(3, (t, n))


def _checkpoints(random: np.random.Generator, t: int, n: int) -> Floats:
    x = _normal(random, t, n)
    for series, first in enumerate(random.integers(0, 600, n)):
        x[first::600, series] += 3.0
    return x


def _drift(random: np.random.Generator, t: int, n: int) -> Floats:
    return _normal(random, t, n) + 0.02 * np.sin(2 * np.pi * (np.arange(t)[:, None] / 3600 + random.random(n)))


def remembering(random: np.random.Generator, t: int, n: int, ticks: int) -> Floats:
    """Normal noise of variance 1 [t, n] that remembers so many ticks."""
    keep, x = np.exp(-1 / ticks), random.standard_normal((t, n))
    x[1:] *= np.sqrt(1 - keep**2)
    for at in range(1, t):
        x[at] += keep * x[at - 1]
    return x


def _restless(random: np.random.Generator, t: int, n: int) -> Floats:
    x = remembering(random, t, n, 60)
    return 0.012 * x + 0.003 * random.standard_normal((t, n))


NOISES: dict[str, Noise] = {
    "normal": _normal,
    "heavy": _heavy,
    "checkpoints": _checkpoints,
    "drift": _drift,
    "restless": _restless,
}


class _Watch:
    """The detector as the workload lane runs it, without the lane."""

    def __init__(self, n: int, budget: float) -> None:
        self.rate = STEPS_SHARE * budget / BUDGET_S
        self.state, self.tail = step_time.init(n), tail.init(2, self.rate, TAIL)
        self.days = 0.0

    def step(self, x: Floats, at_s: float) -> NDArray[np.bool_] | None:
        """Which gangs are loud after a second of the logarithms ``x``."""
        limit = min(float(self.tail.limit[NO_PEERS]), MOST_LIMIT)
        self.state, found = step_time.step(self.state, np.exp(x), at_s, 1.0, limit)
        if found is None:
            return None
        peaks, observed_s = found.ended[found.ended > 0], found.exposure_s.sum()
        self.days += observed_s / 86_400.0
        home = np.full(len(peaks), NO_PEERS)
        self.tail = tail.step(self.tail, home, peaks, np.array([0.0, observed_s]), 1.0, self.rate, len(peaks), TAIL)
        return found.alarm


def generated(gangs: int, seed: int, budget: float = 1.0) -> Iterator[dict[str, Any]]:
    """How soon slowdowns are found, with the budget that ships."""
    for name, noise in NOISES.items():
        for slower in SLOWER:
            x = noise(np.random.default_rng(seed), BEFORE + AFTER, gangs)
            x[BEFORE:] += np.log1p(slower)
            watch, delay_s, early = _Watch(gangs, budget), np.full(gangs, np.inf), np.zeros(gangs, bool)
            for t, row in enumerate(x):
                loud = watch.step(row, 1e9 + t)
                if loud is not None and t < BEFORE:
                    early |= loud
                elif loud is not None:
                    delay_s[loud] = np.minimum(delay_s[loud], t - BEFORE + 1)
            delay_s[early] = np.inf  # named before anything was wrong: that finds nothing
            yield {
                "part": "gangs",
                "noise": name,
                "slower": slower,
                "gangs": gangs,
                "within_60_s": float((delay_s <= 60).mean()),
                "within_300_s": float((delay_s <= 300).mean()),
                "median_s": float(np.median(delay_s)),
                "named_before": int(early.sum()),
            }


def clean(gangs: int, hours: float, seed: int, budgets: tuple[float, ...]) -> Iterator[dict[str, Any]]:
    """False incidents budgeted and observed; what one gang reports again within an hour is the same."""
    for name, noise in NOISES.items():
        for budget in budgets:
            x = noise(np.random.default_rng(seed), round(3600 * hours), gangs)
            watch, got, last = _Watch(gangs, budget), 0, np.full(gangs, -np.inf)
            for t, row in enumerate(x):
                loud = watch.step(row, 1e9 + t)
                if loud is not None and loud.any():
                    got += int((loud & (t - last > 3600)).sum())
                    last[loud] = t
            budgeted = STEPS_SHARE * budget / 1000 * watch.days
            yield {
                "part": "gangs_clean",
                "noise": name,
                "per_1000_gpu_days": budget,
                "gang_days": watch.days,
                "asked": budgeted,
                "got": got,
            }


def in_a_fleet(
    config: FleetConfig,
    start_ns: int,
    incoming: Callable[[Message], Incoming],
    workloads: tuple[str, ...],
    begin_s: float,
) -> Iterator[dict[str, Any]]:
    """Every rank of a gang reports longer steps, and nothing else changes: who is named within two minutes."""
    for workload in workloads:
        for slower in SLOWER:
            fleet, engine = Fleet(config, start_ns), Engine(WorkerConfig())
            engine.feed([incoming(m) for m in fleet.messages_at_start()])
            named: dict[str, float] = {}
            by_others: set[str] = set()
            for tick in range(round((begin_s + 120.0) / config.tick_s)):
                second = tick * config.tick_s
                messages = fleet.tick(tick)
                if second >= begin_s:
                    messages = [_slowed(m, fleet, workload, 1.0 + slower) for m in messages]
                for made in engine.feed([incoming(m) for m in messages]):
                    if header(made.headers, "ce_type") != "io.flyball.Anomaly" or second < begin_s:
                        continue
                    anomaly = decode_record(made.topic, made.value, made.headers)
                    if isinstance(anomaly, Anomaly):
                        if anomaly.detector == "step_time":
                            named.setdefault(anomaly.subject, second - begin_s)
                        elif anomaly.workload == workload:
                            by_others.add(anomaly.detector)
            yield {
                "part": "gang_in_fleet",
                "workload": workload,
                "slower": slower,
                "delay_s": named.get(workload),
                "others_named": len(named.keys() - {workload}),
                "by_other_detectors": sorted(by_others),
            }


def _slowed(message: Message, fleet: Fleet, workload: str, factor: float) -> Message:
    if message.topic != TELEMETRY.name:
        return message
    frame = decode_frame(message.value or b"")
    if frame.schema != WORKLOAD.schema:
        return message
    node = next(node for node in fleet.nodes if node.node == frame.node)
    rows = [row for row, a in enumerate(node.allocations) if a.workload == workload]
    if not rows or len(node.allocations) != frame.rows:
        return message
    values = frame.values.copy()
    values[rows, STEP] *= factor
    kept = {f: getattr(frame, f) for f in frame.__struct_fields__ if f not in ("rows", "block")}
    return frame_message(make_frame(values, **kept))


def described(rows: Sequence[dict[str, Any]]) -> Iterator[tuple[str, tuple[str, ...], list[tuple[str, ...]]]]:
    """Titles, columns and lines of the tables, of parts that were measured."""
    slowed = [r for r in rows if r["part"] == "gangs"]
    if slowed:
        lines: list[tuple[str, ...]] = [
            (
                r["noise"],
                f"{r['slower']:.0%}",
                f"{r['within_60_s']:.1%}",
                f"{r['within_300_s']:.1%}",
                f"{r['median_s']:.0f}",
                str(r["named_before"]),
            )
            for r in slowed
        ]
        titles: tuple[str, ...] = ("step times", "slower by", "within 60 s", "within 5 min", "median s", "named before")
        yield "Gangs that slow down as a whole, generated", titles, lines
    clean = [r for r in rows if r["part"] == "gangs_clean"]
    if clean:
        lines = [
            (r["noise"], f"{r['gang_days']:.0f}", f"{r['per_1000_gpu_days']:g}", f"{r['asked']:.3f}", str(r["got"]))
            for r in clean
        ]
        titles = ("step times", "gang-days", "budget per 1,000 GPU-days", "asked", "got")
        yield "Clean gangs: false incidents", titles, lines
    inside = [r for r in rows if r["part"] == "gang_in_fleet"]
    if inside:
        lines = [
            (
                r["workload"],
                f"{r['slower']:.0%}",
                "no" if r["delay_s"] is None else f"{r['delay_s']:.0f}",
                str(r["others_named"]),
                ", ".join(r["by_other_detectors"]) or "nothing",
            )
            for r in inside
        ]
        titles = ("gang of the fleet", "slower by", "step time, delay s", "other gangs named", "other detectors")
        yield "Gangs of the fleet", titles, lines
