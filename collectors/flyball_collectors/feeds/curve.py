"""Makes one gapless curve from a response's points."""

import math
from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

import msgspec

from flyball_collectors.feeds.base import FeedError
from flyball_contracts.ids import MAX_TIME_NS, NS_PER_S
from flyball_contracts.records import Signal
from flyball_contracts.records.signals import SignalKind

MOST_SLOTS = 2016  # a week of five minutes; also keeps a record far below a broker's 1 MB
CLOCK_SLACK_S = 300.0
_RANGES: dict[SignalKind, tuple[float, float]] = {
    "carbon_intensity": (0.0, 5_000.0),
    "electricity_price": (-100.0, 100.0),
    "spot_price": (0.0, 100_000.0),
    "spot_risk": (0.0, 1.0),
}


class Point(NamedTuple):
    """One slot's value from ``time_ns`` on, in the record's unit; ``None`` or NaN is missing."""

    time_ns: int
    p50: float | None
    p10: float | None = None
    p90: float | None = None


class Shape(NamedTuple):
    """Common properties of a feed's curves."""

    zone: str
    source: str
    kind: SignalKind = "carbon_intensity"
    forecast: bool = True
    average: bool = True
    lifecycle: bool = True


class Cut(NamedTuple):
    """A curve, and the number of the response's values, not past yet, that are not in it."""

    signal: Signal
    left_out: int


def cut_curve(
    points: Iterable[Point], shape: Shape, *, step_s: float, published_ns: int, now_ns: int, where: str
) -> Cut:
    """Cut the longest gapless run from the slots that have not ended at ``now_ns``; the earliest of equals.

    Missing and impossible values are gaps, and a repeated time counts once. At most :data:`MOST_SLOTS` slots are used;
    a longer run continues in later curves. Quantiles are kept if all used slots have them in order. Raises
    :class:`FeedError`, which names ``where``, when no slot is left, or when the curve was issued in the future.
    """
    if published_ns > now_ns + CLOCK_SLACK_S * NS_PER_S:
        ahead_s = (published_ns - now_ns) / NS_PER_S
        raise FeedError(f"{where}: issued {ahead_s:.0f} s in the future; set this host's clock (NTP)")
    step_ns = round(step_s * NS_PER_S)
    future = sorted((p for p in points if p.time_ns + step_ns > now_ns), key=lambda p: p.time_ns)
    by_time = {p.time_ns: p for p in future if possible(p.p50, shape.kind)}
    best: list[Point] = []
    for run in _runs(list(by_time.values()), step_ns):
        best = run if len(run) > len(best) else best
    if not best:
        raise FeedError(f"{where}: none of the values is of now or later; check that the source is kept up to date")
    kept = best[:MOST_SLOTS]
    quantiles = all(p.p10 is not None and p.p90 is not None and p.p10 <= (p.p50 or 0.0) <= p.p90 for p in kept)
    signal = Signal(
        zone=shape.zone,
        kind=shape.kind,
        published_ns=published_ns,
        start_ns=kept[0].time_ns,
        step_s=step_s,
        p50=tuple(p.p50 for p in kept if p.p50 is not None),
        p10=tuple(p.p10 for p in kept if p.p10 is not None) if quantiles else (),
        p90=tuple(p.p90 for p in kept if p.p90 is not None) if quantiles else (),
        forecast=shape.forecast,
        average=shape.average,
        lifecycle=shape.lifecycle,
        source=shape.source,
    )
    unused = 0 if quantiles else sum((p.p10 is not None) + (p.p90 is not None) for p in kept)
    return Cut(signal, len(future) - len(best) + unused)


def longer(new: Signal, old: Signal) -> bool:
    """Whether a curve reaches further than an older one or differs from it where they overlap."""
    step_ns = round(new.step_s * NS_PER_S)
    return any(old.at(new.start_ns + i * step_ns) != value for i, value in enumerate(new.p50))


def first_seen(new: Signal, last: Signal | None) -> Signal:
    """The new curve, issued when it was first seen, for a source without times of issue."""
    return new if last is None or longer(new, last) else msgspec.structs.replace(new, published_ns=last.published_ns)


def smallest_step_s(times_ns: Iterable[int]) -> float | None:
    """Smallest distance of two different times, ``None`` where there are no two."""
    distances = [later - earlier for earlier, later in pairwise(sorted(set(times_ns)))]
    return min(distances) / NS_PER_S if distances else None


def valid_time(time_ns: int) -> bool:
    """Whether a time is between 1970 and 2116, so that a record can hold any curve from it on."""
    return 0 <= time_ns < MAX_TIME_NS // 2


def possible(value: float | None, kind: SignalKind) -> bool:
    """Whether a value is valid for its kind: known, finite, and within bounds of any market."""
    lowest, highest = _RANGES[kind]
    return value is not None and math.isfinite(value) and lowest <= value <= highest


def _runs(points: list[Point], step_ns: int) -> Iterable[list[Point]]:
    run: list[Point] = []
    for point in points:
        if run and point.time_ns != run[-1].time_ns + step_ns:
            yield run
            run = []
        run.append(point)
    if run:
        yield run
