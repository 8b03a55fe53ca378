"""Sensors that are stuck, and metrics that are missing, judged by the other metrics of the same device.

A mean that stays the same to the bit shows no fault while the device does the same. It shows one where another metric
proves that the device does something else: power cannot move by a third while the temperature stands still. How long a
metric repeats by nature, though others move, is learned from the device. Shares of time at their ends (0 and 1) are
saturated, and not judged. The rule and its constants are ours.
"""

from math import exp
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Bools = NDArray[np.bool_]


class Config(NamedTuple):
    """Periods in s. ``least`` and ``most`` bound the values of the judged metrics, both exclusive.

    ``moves[k][j]``: whether metric j shows that metric k should have moved. It does if its mean over ``smooth_s`` moved
    by the share ``share`` of the largest such mean, and by ``moved[j]`` at least. Scrapes of healthy devices lack a
    metric for up to eight minutes (pods of ``alibaba_gentd26``), so one is missing after ``missing_s``.
    """

    least: tuple[float, ...]
    most: tuple[float, ...]
    moved: tuple[float, ...]
    moves: tuple[tuple[bool, ...], ...]
    share: float = 0.3
    smooth_s: float = 120.0
    stuck_s: float = 600.0
    again_s: float = 300.0
    times: float = 4.0
    seen_s: float = 1800.0
    changes: float = 20.0
    delivered_s: float = 600.0
    missing_s: float = 900.0


class State(NamedTuple):
    """Float32 [M, N], all metrics: the last value, NaN if none; time delivered, s; time missing since, s.

    Float32 [K, N], the first K of the metrics, which are judged: the smoothed value and the largest one; time for which
    the value has repeated, s; the longest such time that ended though others moved, s; number of changes. Float32
    [K, K, N]: the least and largest smoothed value of each other metric while one has repeated. Bool [K, N] and [M, N]:
    which are known to be stuck or missing.
    """

    last: Floats
    delivered_s: Floats
    missing_s: Floats
    smooth: Floats
    largest: Floats
    repeats_s: Floats
    longest_s: Floats
    changes: Floats
    low: Floats
    high: Floats
    is_stuck: Bools
    is_missing: Bools


class Found(NamedTuple):
    """What is reported as stuck, [K, N], or missing, [M, N]."""

    stuck: Bools
    missing: Bools


def init(n: int, metrics: int, config: Config) -> State:
    """State of ``n`` devices without observations."""
    judged = len(config.least)
    every, some, pairs = (metrics, n), (judged, n), (judged, judged, n)
    shapes = (every, every, every, some, some, some, some, some, pairs, pairs)
    floats = [np.zeros(shape, np.float32) for shape in shapes]
    floats[0][:] = floats[3][:] = floats[8][:] = floats[9][:] = np.nan
    return State._make((*floats, np.zeros(some, np.bool_), np.zeros(every, np.bool_)))


def step(state: State, x: Floats, mask: Bools, elapsed_s: float, config: Config) -> tuple[State, Found]:
    """Add the means [M, N] of ``elapsed_s``, NaN where a metric is missing; devices outside ``mask`` keep their state.

    A stuck sensor is returned every ``again_s`` until its value changes, a missing metric once until it comes again;
    then it has to be delivered for ``delivered_s`` before it can be missing again.
    """
    period, judged = np.float32(elapsed_s), len(config.least)
    known = np.isfinite(x) & mask
    absent = ~known & known.any(axis=0)
    delivered_s = np.where(known, np.where(state.is_missing, period, state.delivered_s + period), state.delivered_s)
    missing_s = np.where(known, np.float32(0.0), np.where(absent, state.missing_s + period, state.missing_s))
    is_missing = ~known & (missing_s >= config.missing_s) & (delivered_s >= config.delivered_s)

    value, here, last = x[:judged], known[:judged], state.last[:judged]
    same, changed = here & (value == last), here & (value != last) & np.isfinite(last)
    pace = np.float32(1.0 - exp(-elapsed_s / config.smooth_s))
    before = np.where(np.isfinite(state.smooth), state.smooth, value)
    smooth = np.where(here, before + pace * (value - before), state.smooth)
    largest = np.fmax(state.largest, smooth)
    moved = _moved(state.low, state.high, largest, config)
    learns = changed & moved & ~state.is_stuck
    longest_s = np.where(learns, np.maximum(state.longest_s, state.repeats_s), state.longest_s)
    repeats_s = np.where(same, state.repeats_s + period, np.where(here, np.float32(0.0), state.repeats_s))
    restarts = (here & ~same)[:, None]
    low = np.where(restarts, smooth[None], np.fmin(state.low, smooth[None]))
    high = np.where(restarts, smooth[None], np.fmax(state.high, smooth[None]))
    changes = state.changes + changed
    bounds = [np.array(bound, np.float32)[:, None] for bound in (config.least, config.most)]
    armed = (delivered_s[:judged] >= config.seen_s) & (changes >= config.changes)
    with np.errstate(invalid="ignore"):
        inside = (value > bounds[0]) & (value < bounds[1])
    lasts = repeats_s >= np.maximum(np.float32(config.stuck_s), np.float32(config.times) * longest_s)
    is_stuck = np.where(here, same & armed & inside & lasts & _moved(low, high, largest, config), state.is_stuck)
    again = same & (repeats_s // np.float32(config.again_s) > state.repeats_s // np.float32(config.again_s))
    found = Found(is_stuck & (again | ~state.is_stuck), is_missing & ~state.is_missing)
    return State(
        np.where(known, x, state.last), delivered_s, missing_s, smooth, largest, repeats_s, longest_s, changes,
        low, high, is_stuck, np.where(mask, is_missing, state.is_missing),
    ), found  # fmt: skip


def _moved(low: Floats, high: Floats, largest: Floats, config: Config) -> Bools:
    """Whether another metric has moved while each one repeated, [K, N]."""
    least = np.maximum(np.array(config.moved, np.float32)[:, None], np.float32(config.share) * largest)
    counts = np.array(config.moves, np.bool_)[:, :, None]
    with np.errstate(invalid="ignore"):
        return np.asarray((counts & (high - low >= least)).any(axis=1))
