"""Calibrated departures: a device departs further from its own baseline and its peers than healthy ones do.

For each series with value x, and the median of its group where the group has at least three members (else 0):

    r = x - median          a change of the whole group is no departure
    d = min(|fast - slow|, |r - slow|)    fast and slow are running means of r: a spike is no departure
    u = min over this tick and the previous one of d / s

The scale s is the largest recent d of any member of the group, the series itself included. It fades in hours, and is at
least a floor in the unit of the metric. It makes series of one metric comparable, so that their peaks have one tail
(:mod:`flyball_models.anomaly.tail`), with a separate one for series without peers. A series departs when u exceeds the
limit that peaks of healthy series exceed at the configured rate. A new series is not judged for a while, longer if it
has no peers. While a series departs its baseline is not updated; a departure that lasts becomes the new baseline. The
method is our own.

Shapes: N devices, M metrics, arrays [M, N] with the devices last. Strata are the M metrics with peers, then without.
Times are seconds, whatever a tick is.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flyball_models._arrays import Input
from flyball_models.anomaly import tail
from flyball_models.anomaly.peers import Floats, medians


class Config(NamedTuple):
    """Time constants of the means and of the scale's decay, s; warm-up time, and time between reports of a series.

    The tail includes at most one reported departure of a series in `trust_s`, so that one faulty device does not raise
    the limit for all. A series without a value for `stale_s` is reset.
    """

    fast_s: float = 10.0
    slow_s: float = 1800.0
    fade_s: float = 43_200.0
    warm_s: float = 300.0
    alone_s: float = 3600.0
    again_s: float = 300.0
    accept_s: float = 3600.0
    trust_s: float = 86_400.0
    event_s: float = 300.0
    stale_s: float = 600.0


DEFAULT = Config()
_ZERO = np.float32(0.0)
_NOWHERE, _NO_PEAK = np.zeros(0, np.int64), np.zeros(0)


class State(NamedTuple):
    """All but the last [M, N]; times in s.

    `seen_s` is the observed time; `peered` whether r was relative to peers: a change resets the series. `fast` and
    `slow` are means of r, `record` the largest d. `over_s` is the duration of the departure, `rest_s` the time until it
    is reported again. `peak` and `top` are the largest d and u of the current excursion: when it ends, `peak` goes to
    the record, if it was no departure, and `top` goes to the tail. `last` is the u of the previous tick. `doubt_s` is
    the time until the tail includes a departure of the series again, `gap_s` the time without a value. `quiet_s` [N] is
    the time until a peak of the device counts as another event.
    """

    seen_s: Floats
    peered: NDArray[np.bool_]
    fast: Floats
    slow: Floats
    record: Floats
    over_s: Floats
    rest_s: Floats
    peak: Floats
    top: Floats
    last: Floats
    doubt_s: Floats
    gap_s: Floats
    quiet_s: Floats


class Detections(NamedTuple):
    """All [N]: u where a departure is reported, else 0; the expected value in the unit of x, NaN if unknown.

    `since_s` is the duration of the departure, 0 if there is none.
    """

    ratio: Floats
    expected: Floats
    since_s: Floats


class EndedExcursions(NamedTuple):
    """Excursions that ended in a tick, all [n]: metric, device, largest u, and whether it had peers."""

    metric: NDArray[np.int64]
    device: NDArray[np.int64]
    size: NDArray[np.float64]
    peered: NDArray[np.bool_]


def init(n: int, metrics: int) -> State:
    """Return the state of `n` devices with `metrics` metrics, without data."""
    shape = (metrics, n)
    kinds = {"peered": (shape, np.bool_), "quiet_s": ((n,), np.float32)}
    return State._make(np.zeros(*kinds.get(name, (shape, np.float32))) for name in State._fields)


def step(
    state: State,
    known_tail: tail.State,
    x: Input,
    mask: Input,
    group: Input,
    floor: Input,
    period_s: float,
    rate: float,
    config: Config = DEFAULT,
) -> tuple[State, tail.State, Detections]:
    """Score and learn `x` [N, M] where `mask` [N], in ticks of `period_s`.

    `group` int32 [N] numbers groups of peers; a number outside 0..N-1 means none; `floor` [M] is more than 0. `rate` is
    the allowed rate of reports of a clean series, per series-second; `known_tail` has 2 M strata.
    """
    by_metric, group = np.ascontiguousarray(np.asarray(x, np.float32).T), np.asarray(group, np.int64)
    is_known = np.asarray(mask) & np.isfinite(by_metric)
    middle, scale = _of_group(state.record, by_metric, is_known, config.warm_s <= state.seen_s, group)
    scale = np.maximum(scale, np.asarray(floor, np.float32)[:, None])
    updated, found, peaks, warm = _update(state, known_tail.limit, by_metric, is_known, middle, scale, period_s, config)
    watched, peered = warm & is_known, updated.peered
    beside = (watched & peered).sum(axis=1)
    exposure = np.concatenate([beside, watched.sum(axis=1) - beside]) * period_s
    quiet = np.maximum(state.quiet_s - np.float32(period_s), _ZERO)
    events, stratum, peak = 0, _NOWHERE, _NO_PEAK
    metric, device = (peaks > known_tail.over[0].min()).nonzero()  # the tail keeps no smaller ones
    if len(metric):
        size, beside_peers = peaks[metric, device].astype(np.float64), peered[metric, device]
        strata = metric + len(peaks) * ~beside_peers
        home = np.where((group >= 0) & (group < len(group)), group, len(group) + np.arange(len(group)))
        departed = np.unique(device[size > known_tail.threshold[strata]])
        events = len(np.unique(home[departed[quiet[departed] <= 0.0]]))
        quiet[departed] = np.float32(config.event_s)
        stratum, peak = _pooled(EndedExcursions(metric, device, size, beside_peers), home, len(peaks))
    tail_state = tail.step(known_tail, stratum, peak, exposure, period_s, rate, events)
    return updated._replace(quiet_s=quiet), tail_state, found


def _of_group(
    record: Floats, x: Floats, known: NDArray[np.bool_], established: NDArray[np.bool_], group: NDArray[np.int64]
) -> tuple[Floats, Floats]:
    """Median of `x` [M, N] over the group, NaN without peers, and its largest record [M, N].

    If three or more members are warmed up, they alone make the median: a new member of a group does not shift the
    others.
    """
    metrics, n = x.shape
    placed = (group >= 0) & (group < n)
    if not placed.any():
        return np.full((metrics, n), np.nan, np.float32), record
    places = (n + 1) * metrics
    row: NDArray[np.int64] = np.arange(metrics, dtype=np.int64)
    place: NDArray[np.int64] = np.add(np.where(placed, group, n) * metrics, row[:, None], dtype=np.int64)
    present = known & placed
    if (fresh := present & ~established).any():
        settled = np.bincount(place[present & established], minlength=places) >= 3
        present &= ~(fresh & settled[place])
    inside: NDArray[np.int64] = place[present]
    members = np.bincount(inside, minlength=places)
    middle = np.where(members >= 3, medians(x[present], inside, members), np.float32(np.nan))
    largest = np.zeros(places, np.float32)
    np.maximum.at(largest, place.ravel(), record.ravel())
    return middle[place], np.where(placed, largest[place], record)


@np.errstate(invalid="ignore", divide="ignore", over="ignore")  # on unknown values
def _update(
    state: State,
    limit: NDArray[np.float64],
    x: Floats,
    known: NDArray[np.bool_],
    middle: Floats,
    scale: Floats,
    period_s: float,
    config: Config,
) -> tuple[State, Detections, Floats, NDArray[np.bool_]]:
    """Return the state, detections, the u of excursions that ended, and the monitored series, all [M, N].

    `middle` is the median of the group, NaN without one. NumPy, not JAX: these are simple operations on few numbers,
    faster than a call of a compiled function. New series, departures and loud excursions, which are rare, are skipped
    when there are none.
    """
    metrics = len(x)
    peered = np.isfinite(middle)
    base = np.where(peered, middle, _ZERO)
    r = np.where(known, x - base, _ZERO)
    fresh = (state.seen_s <= 0.0) | (state.peered != peered) | (state.gap_s >= config.stale_s)
    seen, slow, record = state.seen_s, state.slow, state.record * np.float32(math.exp(-period_s / config.fade_s))
    fast = np.asarray(state.fast + np.float32(_gain(period_s, config.fast_s)) * (r - state.fast), np.float32)
    away = np.minimum(np.abs(fast - slow), np.abs(r - slow))
    before, top = state.peak, state.top
    if begins := bool((fresh & known).any()):
        seen, fast = np.where(fresh, _ZERO, seen), np.where(fresh, r, fast)
        away, record, before, top = (np.where(fresh, _ZERO, one) for one in (away, record, before, top))
    one: Floats = np.asarray(away / scale, np.float32)
    both = np.minimum(one, state.last)
    warm = seen >= np.where(peered, np.float32(config.warm_s), np.float32(config.alone_s))
    least = np.where(peered, limit[:metrics, None], limit[metrics:, None]).astype(np.float32)
    departing = warm & (both >= least)
    departs = bool(departing.any())
    rest = np.maximum(state.rest_s - np.float32(period_s), _ZERO)
    doubt = np.maximum(state.doubt_s - np.float32(period_s), _ZERO)
    over = np.where(departing, state.over_s + np.float32(period_s), _ZERO) if departs else np.zeros_like(both)
    reported = departing & known & (rest <= 0.0) if departs else departing
    accepted = over >= config.accept_s if departs else departing
    gain = np.maximum(np.float32(_gain(period_s, config.slow_s)), np.float32(period_s) / (seen + np.float32(period_s)))
    mean = slow + gain * (r - slow)
    mean = np.where(departing, slow, mean) if departs else mean
    peak, top = np.maximum(before, away), np.maximum(top, both)
    cold = ~warm
    ended = cold | (away < np.float32(0.5) * peak)
    ended = ended | accepted if departs else ended
    ends, was_loud = ended & warm & known, top >= least
    if was_loud.any():
        peaks = np.where(ends & ~(was_loud & (doubt > 0.0)), top, _ZERO)
        doubt = np.where(ends & was_loud, np.float32(config.trust_s), doubt)
        usual = ended & (accepted | ~was_loud | cold)
    else:
        peaks, usual = np.where(ends, top, _ZERO), ended
    record = np.where(usual, np.maximum(record, peak), record)
    seen = seen + np.float32(period_s)
    updated = State(
        seen_s=np.where(accepted, _ZERO, seen) if departs else seen,
        peered=peered,
        fast=fast,
        slow=np.where(fresh, r, mean) if begins else mean,
        record=record,
        over_s=np.where(accepted, _ZERO, over) if departs else over.copy(),
        rest_s=np.where(reported, np.float32(config.again_s), rest) if departs else rest,
        peak=np.where(ended, away, peak),
        last=np.where(fresh, _ZERO, one) if begins else one,
        top=np.where(ended, _ZERO, top),
        doubt_s=doubt,
        gap_s=state.gap_s,
        quiet_s=state.quiet_s,
    )
    unknown = ~known
    for new, old in zip(updated, state, strict=True):
        if new is not old:  # an array of this call
            np.putmask(new, unknown, old)
    gap = state.gap_s + np.float32(period_s)
    np.putmask(gap, known, _ZERO)
    kept = updated._replace(gap_s=gap)
    expected = np.where(fresh, np.float32(np.nan), base + slow)
    return kept, Detections(np.where(reported, both, _ZERO) if departs else over, expected, over), peaks, warm


def _pooled(
    ended: EndedExcursions, home: NDArray[np.int64], metrics: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Strata and sizes of the ended excursions; if several members of a group end one together, only the largest."""
    metric, device, size, peered = ended
    stratum = np.where(peered, metric, metric + metrics)
    if len(size) < 2:
        return stratum, size
    place = np.where(peered, home[device], 2 * len(home) + device)
    order = np.lexsort((-size, place, stratum))
    stratum, place, size = stratum[order], place[order], size[order]
    first = np.append(True, (np.diff(stratum) != 0) | (np.diff(place) != 0))
    return stratum[first], size[first]


def _gain(period_s: float, constant_s: float) -> float:
    """Weight of a tick in a running mean."""
    return -math.expm1(-period_s / constant_s)
