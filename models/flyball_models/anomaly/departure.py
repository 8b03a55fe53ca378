"""Calibrated departures: a device leaves its own course, and what its peers do, for longer than ever before.

For each series with value x, and the median of its group where the group has at least three members (else 0):

    r = x - median          a change of the whole group is no departure
    d = min(|fast - slow|, |r - slow|)    fast and slow are running means of r: a spike is none, either
    score = 1 - 1 / (1 + d / s)

The scale s is what is known of the tail of d: the largest departure of any member of the group, itself included, which
fades in hours, and at least a floor in the unit of the metric. A series has no score until it was seen for a while, for
longer when it has no peers, and none when its scale was passed for a moment only: for less than `last_s`, or
in one tick. While it departs it does not
learn; a departure that lasts is accepted as the new course. The method is ours.

Shapes: N devices, M metrics, arrays [M, N] with the devices last. Times are seconds, whatever a tick is.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flyball_models._arrays import Input
from flyball_models._padding import grow
from flyball_models.anomaly.peers import Floats, medians


class Config(NamedTuple):
    """Time constants of the means and of the scale's fading, s; when a series speaks, and after how long again."""

    fast_s: float = 10.0
    slow_s: float = 1800.0
    fade_s: float = 43_200.0
    warm_s: float = 300.0
    alone_s: float = 3600.0
    last_s: float = 10.0
    again_s: float = 300.0
    accept_s: float = 3600.0


DEFAULT = Config()
_ZERO = np.float32(0.0)


class State(NamedTuple):
    """All [M, N]: seconds seen, means and largest departure of r, seconds over the scale and of rest, and `peak`.

    `peak` is of the departure that lasts; it is added to the record when it has ended, if it was not reported. `peered`
    is true where r was taken against peers: when that changes the series begins anew.
    """

    seen_s: Floats
    peered: NDArray[np.bool_]
    fast: Floats
    slow: Floats
    record: Floats
    over_s: Floats
    rest_s: Floats
    peak: Floats


class Found(NamedTuple):
    """score [M, N] in 0..1, 0 where nothing departs; expected [M, N] in the unit of x, NaN where not known."""

    score: Floats
    expected: Floats


def init(n: int, metrics: int) -> State:
    """Return the state of `n` devices with `metrics` metrics that have had no value."""
    shape = (metrics, n)
    seen, *rest = (np.zeros(shape, np.float32) for _ in range(7))
    return State(seen, np.zeros(shape, np.bool_), *rest)


def resize(state: State, n: int) -> State:
    """Return the state with room for `n` devices, its content kept."""
    metrics = state.record.shape[0]
    return grow(state, n, lambda size: init(size, metrics))


def step(
    state: State,
    x: Input,
    mask: Input,
    group: Input,
    floor: Input,
    period_s: float,
    least: float,
    config: Config = DEFAULT,
) -> tuple[State, Found]:
    """Score and learn `x` [N, M] where `mask` [N], in ticks of `period_s`; scores of less than `least` are 0.

    `group` int32 [N] puts peers together, a number out of 0..N-1 means none; `floor` [M] is more than 0.
    """
    x, group = np.asarray(x, np.float32), np.asarray(group, np.int64)
    known = np.asarray(mask)[:, None] & np.isfinite(x)
    middle, scale = _of_group(np.asarray(state.record), x, known, group)
    scale = np.maximum(scale, np.asarray(floor, np.float32)[:, None])
    return _learn(state, x.T, known.T, middle, scale, period_s, least, config)


def _of_group(record: Floats, x: Floats, known: NDArray[np.bool_], group: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """Median of x [M, N] over the group, NaN without peers, and the largest record [M, N] of it."""
    n, metrics = x.shape
    placed = (group >= 0) & (group < n)
    if not placed.any():
        return np.full((metrics, n), np.nan, np.float32), record
    home = np.asarray(np.where(placed, group, n), np.int64)
    cell = np.asarray(home[:, None] * metrics + np.arange(metrics), np.int64)
    rows, columns = np.nonzero(known & placed[:, None])
    inside = np.asarray(cell[rows, columns], np.int64)
    members = np.bincount(inside, minlength=(n + 1) * metrics)
    middle = medians(x[rows, columns], inside, members)
    middle = np.where(members >= 3, middle, np.float32(np.nan))
    largest = np.zeros((n + 1) * metrics, np.float32)
    np.maximum.at(largest, cell.ravel(), record.T.ravel())
    own = np.where(placed[:, None], largest[cell], record.T)
    return np.ascontiguousarray(middle[cell].T), np.ascontiguousarray(own.T)


@np.errstate(invalid="ignore", divide="ignore", over="ignore")  # of what is not known
def _learn(
    state: State,
    x: Floats,
    known: NDArray[np.bool_],
    middle: Floats,
    scale: Floats,
    period_s: float,
    least: float,
    config: Config,
) -> tuple[State, Found]:
    """Return the state and the scores, all [M, N], given the median of the group, NaN without one, and the scale.

    NumPy, not JAX: these are simple operations on few numbers, and to call what is compiled takes longer. What most
    ticks have nothing of, new series and departures, is passed over where there is none.
    """
    peered = np.isfinite(middle)
    base = np.where(peered, middle, _ZERO)
    r = np.where(known, x - base, _ZERO)
    fresh = (state.seen_s <= 0.0) | (state.peered != peered)
    seen, slow, record = state.seen_s, state.slow, state.record * math.exp(-period_s / config.fade_s)
    fast: Floats = np.asarray(state.fast + _learned(period_s, config.fast_s) * (r - state.fast), np.float32)
    away = np.minimum(np.abs(fast - slow), np.abs(r - slow))
    before = state.peak
    if begins := bool(fresh.any()):
        seen, fast = np.where(fresh, _ZERO, seen), np.where(fresh, r, fast)
        away, record, before = (np.where(fresh, _ZERO, one) for one in (away, record, before))
    raw = 1.0 - 1.0 / (1.0 + away / scale)
    warm = seen >= np.where(peered, np.float32(config.warm_s), np.float32(config.alone_s))
    loud = warm & (raw >= least)
    departs = bool(loud.any())
    rest = np.maximum(state.rest_s - period_s, _ZERO)
    longer = state.over_s + period_s
    over: Floats = np.asarray(np.where(loud, longer, _ZERO) if departs else np.zeros(raw.shape), np.float32)
    reported = loud & known & (over >= max(config.last_s, 2.0 * period_s)) & (rest <= 0.0) if departs else loud
    accepted = over >= config.accept_s if departs else loud
    pace = np.maximum(_learned(period_s, config.slow_s), period_s / (seen + period_s))
    mean = slow + pace * (r - slow)
    mean = np.where(loud, slow, mean) if departs else mean
    peak = np.maximum(before, away)
    peak = np.where(over >= config.last_s, _ZERO, peak) if departs else peak
    ended = ~warm | accepted | (away < 0.5 * peak)
    record = np.where(ended, np.maximum(record, np.where(accepted, away, peak) if departs else peak), record)
    seen = seen + period_s
    updated = State(
        seen_s=np.where(accepted, _ZERO, seen) if departs else seen,
        peered=peered,
        fast=fast,
        slow=np.where(fresh, r, mean) if begins else mean,
        record=record,
        over_s=np.where(accepted, _ZERO, over) if departs else over,
        rest_s=np.where(reported, np.float32(config.again_s), rest) if departs else rest,
        peak=np.where(ended, away, peak),
    )
    kept = State(*(np.where(known, new, old) for new, old in zip(updated, state, strict=True)))
    expected = base + slow
    if begins:
        expected = np.where(fresh, np.float32(np.nan), expected)
    return kept, Found(np.where(reported, raw, _ZERO) if departs else over, expected)


def _learned(period_s: float, constant_s: float) -> float:
    """Share of a mean that a tick replaces."""
    return -math.expm1(-period_s / constant_s)
