"""Replicas that answer more slowly than their peers, or not at all, and false incidents of clean services.

Generated services of 24 replicas report once a minute. All replicas of a service follow its day and its noise, which is
no fault. Besides, the logarithm of a replica's latency is one of: steady (3 %, as times of output tokens are at an even
load); busy (30 %, as times of whole requests are); heavy (Student's t of 3 degrees, 15 %); restless (15 % that
remembers half an hour); tenants (10 %, and for an hour a day other requests, which take some 25 % more or less). An
answer ends in four of five minutes; *sparse* is busy with one of five. The limit starts from the prior, so all is cold.
Times to find count from the fault, two hours after the start. The constants were chosen on the even half of the pods of
``alibaba_gentd26``, none on these series.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from bench.anomalies.gangs import remembering
from numpy.typing import NDArray

from flyball_models.anomaly import latency, tail
from flyball_streams.engine.budget import BUDGET_S, LATENCY_SHARE
from flyball_streams.engine.workload.replica_latencies import DETECTORS, TAIL

Floats = NDArray[np.float64]
Noise = Callable[[np.random.Generator, int, int], Floats]
REPLICAS, PERIOD_S, DAY = 24, 60.0, 1440
BEFORE, AFTER = 120, 60
SLOWER = (1.1, 1.25, 1.5, 2.0, np.nan)
"""Factors of the latency, NaN for no answer."""
SAME_MINUTES = 60
BUDGETS = 1.0, 10.0, 100.0


def _normal(spread: float) -> Noise:
    return lambda random, t, n: spread * random.standard_normal((t, n))


def _heavy(random: np.random.Generator, t: int, n: int) -> Floats:
    return 0.15 * random.standard_t(3, (t, n))


def _restless(random: np.random.Generator, t: int, n: int) -> Floats:
    x = remembering(random, t, n, 30)
    return 0.15 * x + 0.03 * random.standard_normal((t, n))


def _tenants(random: np.random.Generator, t: int, n: int) -> Floats:
    x = 0.1 * random.standard_normal((t, n))
    for at, replica in np.argwhere(random.random((t, n)) < 1.0 / DAY).tolist():
        x[at : at + 60, replica] += 0.25 * random.standard_normal()
    return x


NOISES: dict[str, tuple[Noise, float]] = {
    "steady": (_normal(0.03), 0.8),
    "busy": (_normal(0.3), 0.8),
    "sparse": (_normal(0.3), 0.2),
    "heavy": (_heavy, 0.8),
    "restless": (_restless, 0.8),
    "tenants": (_tenants, 0.8),
}


def _series(random: np.random.Generator, name: str, minutes: int, services: int) -> Floats:
    """Latencies [T, N] of so many services, NaN where no request ended."""
    noise, share = NOISES[name]
    n = services * REPLICAS
    own = noise(random, minutes, n)
    day = 0.5 * np.sin(2 * np.pi * (np.arange(minutes)[:, None] / DAY + random.random(services)))
    common = np.repeat(day + 0.1 * random.standard_normal((minutes, services)), REPLICAS, axis=1)
    x = np.exp(own + common)
    x[random.random((minutes, n)) >= share] = np.nan
    return x


class _Watch:
    """The detector as the workload lane runs it, without the lane."""

    def __init__(self, services: int, budget: float) -> None:
        n = services * REPLICAS
        self.rate = LATENCY_SHARE * budget / BUDGET_S / len(DETECTORS)
        self.state, self.tail = latency.init(n), tail.init(len(DETECTORS), self.rate, TAIL)
        self.group, self.idle = np.repeat(np.arange(services, dtype=np.int32), REPLICAS), np.zeros(n, np.bool_)

    def step(self, latency_s: Floats) -> NDArray[np.bool_]:
        """Which replicas are reported after a minute."""
        limit = self.tail.limit
        self.state, found = latency.step(
            self.state, latency_s.astype(np.float32), self.idle, self.group, PERIOD_S, limit
        )
        kind, slot = found.ended.nonzero()
        peaks, exposure_s = found.ended[kind, slot].astype(np.float64), found.watched.sum(axis=1) * PERIOD_S
        self.tail = tail.step(self.tail, kind, peaks, exposure_s, PERIOD_S, self.rate, len(np.unique(slot)), TAIL)
        return np.asarray((found.ratio > 0).any(axis=0), np.bool_)


def slowed(seed: int, services: int, budget: float = 1.0) -> Iterator[dict[str, Any]]:
    """How soon one slow replica of each service is found, with the budget that ships."""
    for name in NOISES:
        for factor in SLOWER:
            x = _series(np.random.default_rng(seed), name, BEFORE + AFTER, services)
            mine = np.arange(services) * REPLICAS + 5
            x[BEFORE:, mine] *= factor
            watch, delay = _Watch(services, budget), np.full(x.shape[1], np.inf)
            early = np.zeros(x.shape[1], np.bool_)
            for t, row in enumerate(x):
                loud = watch.step(row)
                if t < BEFORE:
                    early |= loud
                else:
                    delay[loud] = np.minimum(delay[loud], t - BEFORE + 1)
            found = np.where(early[mine], np.inf, delay[mine])  # named before anything was wrong: that finds nothing
            yield {
                "part": "replicas",
                "noise": name,
                "factor": None if np.isnan(factor) else factor,
                "services": services,
                "within_10_min": float((found <= 10).mean()),
                "within_60_min": float((found <= 60).mean()),
                "median_min": float(np.median(found)) if np.isfinite(np.median(found)) else None,
                "others": int(np.isfinite(np.delete(delay, mine)).sum() + early.sum()),
            }


def clean(seed: int, services: int, days: float) -> Iterator[dict[str, Any]]:
    """False incidents budgeted and observed; what one replica reports again within an hour is the same."""
    for name in NOISES:
        x = _series(np.random.default_rng([seed, 1]), name, round(days * DAY), services)
        for budget in BUDGETS:
            watch, last, count = _Watch(services, budget), np.full(x.shape[1], -np.inf), 0
            for t, row in enumerate(x):
                loud = np.flatnonzero(watch.step(row))
                count += int((t - last[loud] > SAME_MINUTES).sum())
                last[loud] = t
            gpu_days = x.shape[1] * days
            yield {
                "part": "replicas_clean",
                "noise": name,
                "per_1000_gpu_days": budget,
                "gpu_days": gpu_days,
                "asked": LATENCY_SHARE * budget * gpu_days / 1000.0,
                "whole_budget": budget * gpu_days / 1000.0,
                "got": count,
            }


def described(rows: Sequence[dict[str, Any]]) -> Iterator[tuple[str, tuple[str, ...], list[tuple[str, ...]]]]:
    """Titles, columns and lines of the tables, of parts that were measured."""
    found = [r for r in rows if r["part"] == "replicas"]
    if found:
        lines: list[tuple[str, ...]] = [
            (
                r["noise"],
                "no answers" if r["factor"] is None else f"{r['factor']:g} times",
                f"{r['within_10_min']:.0%}",
                f"{r['within_60_min']:.0%}",
                "" if r["median_min"] is None else f"{r['median_min']:.0f}",
                str(r["others"]),
            )
            for r in found
        ]
        titles: tuple[str, ...] = ("latency", "fault", "within 10 min", "within 60 min", "median min", "others named")
        yield "One replica of each service, generated", titles, lines
    clean = [r for r in rows if r["part"] == "replicas_clean"]
    if clean:
        lines = [
            (
                r["noise"],
                f"{r['gpu_days']:.0f}",
                f"{r['per_1000_gpu_days']:g}",
                f"{r['asked']:.2f}",
                f"{r['whole_budget']:.1f}",
                str(r["got"]),
            )
            for r in clean
        ]
        titles = ("latency", "GPU-days", "budget per 1,000 GPU-days", "its share", "all detectors", "got")
        yield "Clean services: false incidents", titles, lines
