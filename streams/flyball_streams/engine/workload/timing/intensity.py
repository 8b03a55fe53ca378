"""A curve of carbon or price up to a deadline: the provider's values and, beyond them, the usual daily course."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import Signal

HOUR_NS = 3600 * NS_PER_S
WEEK_HOURS = 7 * 24
MOST_COST = 1e9
"""Size above which a value is a fault of the feed; float32 ends at 3e38."""
HELD = 0.93
"""Share of the logarithm of a deviation from the usual course that remains an hour later; 0.85 to 0.97 in grids of
2020 to 2022."""
Floats = NDArray[np.float64]
Times = NDArray[np.int64]


def values_at(signal: Signal, times_ns: Times) -> Floats:
    """Values of a curve at some times, float64[times]; NaN outside the curve and for faulty values."""
    curve = np.array([*signal.p50, math.nan], np.float64)
    slot = (times_ns - signal.start_ns) // max(1, round(signal.step_s * NS_PER_S))
    inside = (slot >= 0) & (slot < len(signal.p50))
    found = curve[np.where(inside, slot, len(signal.p50))]
    return np.where(np.abs(found) <= MOST_COST, found, math.nan)


class Week:
    """Hourly means of the last seven days of one quantity of a zone: the newest curve for an hour counts."""

    def __init__(self) -> None:
        self.hours: dict[int, float] = {}
        self._noted: tuple[int, int] | None = None

    def note(self, signal: Signal, now_ns: int) -> None:
        """Add a curve's values for the hours up to now; a known curve adds only the new hour."""
        now = now_ns // HOUR_NS
        basis = (signal.published_ns, now)
        if self._noted == basis:
            return
        first = max(now - WEEK_HOURS + 1, signal.start_ns // HOUR_NS)
        if self._noted is not None and self._noted[0] == signal.published_ns:
            first = max(first, self._noted[1] + 1)
        self._noted = basis
        hours = np.arange(first, now + 1, dtype=np.int64)
        if len(hours):
            quarters = hours[:, None] * HOUR_NS + (np.arange(4) * 2 + 1) * (HOUR_NS // 8)
            values = values_at(signal, quarters.reshape(-1)).reshape(-1, 4)
            known = np.isfinite(values)
            total, count = np.where(known, values, 0.0).sum(axis=1), known.sum(axis=1)
            for hour, of, n in zip(hours.tolist(), total.tolist(), count.tolist(), strict=True):
                if n:
                    self.hours[hour] = of / n
        if len(self.hours) > WEEK_HOURS or (self.hours and min(self.hours) <= now - WEEK_HOURS):
            self.hours = {h: v for h, v in self.hours.items() if now - WEEK_HOURS < h <= now}

    def usual(self, times_ns: Times) -> Floats:
        """Mean over the days at these times of day, float64[times]; the mean of all hours for an hour without data."""
        if not self.hours:
            return np.full(len(times_ns), math.nan)
        hours = np.fromiter(self.hours, np.int64, len(self.hours))
        values = np.fromiter(self.hours.values(), np.float64, len(self.hours))
        count = np.bincount(hours % 24, minlength=24)
        total = np.bincount(hours % 24, values, minlength=24)
        by_hour = np.where(count > 0, total / np.maximum(count, 1), values.mean())
        return by_hour[times_ns // HOUR_NS % 24]

    def state(self) -> list[Any]:
        """State for a snapshot."""
        return [[*self.hours], [*self.hours.values()], self._noted]

    @classmethod
    def of(cls, state: list[Any]) -> "Week":
        """Week of a snapshot."""
        week = cls()
        week.hours = dict(zip(state[0], state[1], strict=True))
        week._noted = (state[2][0], state[2][1]) if state[2] else None
        return week


def course(signal: Signal, week: Week, times_ns: Times) -> Floats:
    """Curve at ascending times, in its unit, float64[times]: NaN only if nothing is known.

    Beyond the provider's values, the curve is the mean of the last seven days by time of day, times the ratio of the
    last known value to that mean, whose logarithm decays to ``HELD`` of itself per hour.
    """
    known = values_at(signal, times_ns)
    gaps = ~np.isfinite(known)
    if not gaps.any():
        return known
    anchors = _anchors(signal, week, times_ns)
    usual = week.usual(times_ns)
    if anchors is None:
        return np.where(gaps, usual, known)
    anchor_ns, anchor = anchors
    there = week.usual(anchor_ns)
    ratio = np.where((anchor > 0) & (there > 0), anchor / np.where(there > 0, there, 1.0), 1.0)
    faded = HELD ** ((times_ns - anchor_ns) / HOUR_NS)
    filled = np.where(np.isfinite(usual), usual * np.where(ratio > 0, ratio, 1.0) ** faded, anchor)
    return np.where(gaps, filled, known)


def _anchors(signal: Signal, week: Week, times_ns: Times) -> tuple[Times, Floats] | None:
    """Time and value of the last known value at or before each time: from the curve, or else measured."""
    step_ns = max(1, round(signal.step_s * NS_PER_S))
    middles = signal.start_ns + np.arange(len(signal.p50), dtype=np.int64) * step_ns + step_ns // 2
    values = values_at(signal, middles)
    known = np.isfinite(values)
    middles, values = middles[known], values[known]
    first = int(middles[0]) if len(middles) else None
    before = [h for h in week.hours if first is None or h * HOUR_NS + HOUR_NS // 2 < first]
    if before:
        last = max(before)
        middles = np.concatenate([np.array([last * HOUR_NS + HOUR_NS // 2], np.int64), middles])
        values = np.concatenate([np.array([week.hours[last]]), values])
    if not len(middles):
        return None
    at = np.maximum(np.searchsorted(middles, times_ns, side="right") - 1, 0)
    anchor_ns = np.minimum(middles[at], times_ns)  # the first value also counts for earlier times
    return anchor_ns, values[at]
