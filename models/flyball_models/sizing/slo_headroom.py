"""The policy slo_headroom for many workloads at once: :mod:`flyball_models.scaling.headroom` in columns.

Work comes as means of five seconds, NaN where nothing was reported. A minute with less than half of them is left out.
After an hour without data, a workload's earlier needs are dropped; its z stays, because it adapts slowly.

A :class:`Rule` computes the spread and bounds z from below: :mod:`flyball_models.sizing.lead_time_headroom` has another
one.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
SAMPLE_S = 5
SAMPLES = 12
"""Samples of a minute; the second largest of them is their 0.9 quantile."""
LONGEST = 60
"""Minutes of needs that are kept."""
MOST_HELD = 30
LEAST_Z, MOST_Z = 0.2, 20.0
TAIL = 0.55
FLAT = 0.02
"""Minimum spread as a share of the level: constant demand may change."""
KNOWN = 5
"""Minutes of history before replicas may be removed."""
NOW_SAMPLES = 6
"""Samples of present work: half a minute."""
LEAST_SAMPLES = SAMPLES // 2
SILENT_SAMPLES = LONGEST * SAMPLES


class State(NamedTuple):
    """History of N workloads; work is in any unit, the same for all values of one workload.

    ``raw`` are the last twelve samples and ``smooth`` their means over the delay, by their place in the minute;
    ``needs`` and ``means`` those of the last 60 known minutes and ``targets`` of the last 30, in rings that ``minutes``
    counts. ``shift`` is the total change of z, ``late`` and ``work`` are sums since its last change. ``target``, and
    its ``level`` and ``spread``, are NaN before the first minute is over. ``error`` is the mean square of errors at the
    lead time; ``held`` is the held present need, ``since`` the second when it was observed.
    """

    raw: Floats
    smooth: Floats
    needs: Floats
    means: Floats
    targets: Floats
    target: Floats
    level: Floats
    spread: Floats
    shift: Floats
    late: Floats
    work: Floats
    error: Floats
    held: Floats
    since: Floats
    minutes: Ints
    silent: Ints


class Rule(NamedTuple):
    """Policy-specific part: the lower bound of z, and the square of the spread of some workloads.

    ``square(state, terms, due)`` returns the squared spread, float64 [D], of the workloads in the columns `due` [D]
    when a minute has been added to their rings; it may update the state.
    """

    least_z: float
    square: "Callable[[State, Terms, Ints], Floats]"


class Terms(NamedTuple):
    """The objective: initial z, the allowed late share, the delay in seconds and in five-second samples.

    ``lead`` are the minutes until a replica ordered now is ready. ``eta`` is the change of z in a minute in which all
    work was late, ``level`` and ``hold`` are minutes.
    """

    z: Floats
    allowed: Floats
    delay_s: Floats
    delay: Ints
    lead: Ints
    rule: Rule
    eta: float
    level: int
    hold: int


def start(objective: float) -> float:
    """Return the z of a share in time for a tail that falls by e per 0.55 spreads; tracking forgets it within days."""
    return TAIL * math.log(1.0 / max(1.0 - objective, 1e-6))


def init(n: int) -> State:
    """Return the state of `n` workloads without data."""
    nan, zero, none = np.full(n, np.nan), np.zeros(n), np.zeros(n, np.int64)
    return State(
        raw=np.full((SAMPLES, n), np.nan),
        smooth=np.full((SAMPLES, n), np.nan),
        needs=np.full((LONGEST, n), np.nan),
        means=np.full((LONGEST, n), np.nan),
        targets=np.full((MOST_HELD, n), np.nan),
        target=nan,
        level=nan.copy(),
        spread=nan.copy(),
        shift=zero,
        late=zero.copy(),
        work=zero.copy(),
        error=zero.copy(),
        held=zero.copy(),
        since=zero.copy(),
        minutes=none,
        silent=none.copy(),
    )


def learn(state: State, within: int, sample: Floats, in_time: Floats, terms: Terms) -> None:
    """Add one sample [N], the `within`-th of twelve of its minute; the state is changed in place.

    `in_time` [N] is 1 where the work of the sample was served within the delay, 0 where not, NaN where unknown.
    """
    known = np.isfinite(sample)
    state.raw[within] = sample
    last = state.raw[(within - np.arange(SAMPLES)) % SAMPLES]
    part = np.isfinite(last) & (np.arange(SAMPLES)[:, None] < terms.delay)
    count = part.sum(axis=0)
    state.smooth[within] = np.where(
        known & (count > 0), np.where(part, last, 0.0).sum(axis=0) / np.maximum(count, 1), np.nan
    )
    judged = known & np.isfinite(in_time)
    state.work[judged] += sample[judged]
    too_late = judged & (in_time == 0.0)
    state.late[too_late] += sample[too_late]
    state.silent[known] = 0
    state.silent[~known] += 1
    state.minutes[state.silent >= SILENT_SAMPLES] = 0
    if within == SAMPLES - 1:
        _close(state, terms)


def present(state: State, within: int) -> Floats:
    """Mean of the last samples up to the `within`-th [N], NaN without samples."""
    last = state.raw[(within - np.arange(NOW_SAMPLES)) % SAMPLES]
    known = np.isfinite(last)
    count = known.sum(axis=0)
    return np.where(count > 0, np.where(known, last, 0.0).sum(axis=0) / np.maximum(count, 1), np.nan)


def known(state: State) -> NDArray[np.bool_]:
    """Whether the history is long enough to remove replicas [N]."""
    return state.minutes >= KNOWN


def z_of(state: State, terms: Terms) -> Floats:
    """Current z [N]."""
    return terms.z + state.shift


def _close(state: State, terms: Terms) -> None:
    """Close a minute with enough samples: compute its need and its mean, update z, set the target."""
    reported = np.isfinite(state.raw)
    samples = reported.sum(axis=0)
    due = np.flatnonzero(samples >= LEAST_SAMPLES)
    if len(due):
        smooth = np.sort(np.where(np.isfinite(state.smooth[:, due]), state.smooth[:, due], -np.inf), axis=0)
        mean = np.where(reported[:, due], state.raw[:, due], 0.0).sum(axis=0) / samples[due]
        count = state.minutes[due]
        state.needs[count % LONGEST, due] = smooth[-2]
        state.means[count % LONGEST, due] = mean
        count = state.minutes[due] = count + 1
        square = terms.rule.square(state, terms, due)
        _track(state, terms, due)
        level = mean_of_last(state.means, count, due, terms.level)
        spread = np.maximum(np.sqrt(square), FLAT * level)
        state.level[due], state.spread[due] = level, spread
        state.targets[(count - 1) % MOST_HELD, due] = level + z_of(state, terms)[due] * spread
        held, valid = _newest(state.targets, count, due, max(1, min(terms.hold, MOST_HELD)))
        state.target[due] = np.where(valid, held, -np.inf).max(axis=0)
    state.smooth.fill(np.nan)


def _track(state: State, terms: Terms, due: Ints) -> None:
    """Update z by the late work of the minute, where there was work and its delay is known."""
    judged = due[state.work[due] > 0.0]
    late = state.late[judged] / state.work[judged]
    start = terms.z[judged]
    moved = state.shift[judged] + terms.eta * (late - terms.allowed[judged])
    state.shift[judged] = np.clip(moved, terms.rule.least_z - start, MOST_Z - start)
    state.late[judged] = state.work[judged] = 0.0


def mean_of_last(ring: Floats, count: Ints, due: Ints, window: int) -> Floats:
    """Mean of the last `window` known values before `count` [D] of the columns `due` of a ring [D]."""
    values, valid = _newest(ring, count, due, window)
    return np.asarray(np.where(valid, values, 0.0).sum(axis=0) / np.minimum(count, window))


def of_hour(state: State, due: Ints) -> Floats:
    """Mean square of the needs of the last hour about their mean [D]."""
    count = state.minutes[due]
    needs, valid = _newest(state.needs, count, due, LONGEST)
    apart = np.where(valid, needs - mean_of_last(state.needs, count, due, LONGEST), 0.0)
    return np.asarray((apart**2).sum(axis=0) / np.minimum(count, LONGEST))


def _square(state: State, terms: Terms, due: Ints) -> Floats:
    return of_hour(state, due)


RULE = Rule(LEAST_Z, _square)


def _newest(ring: Floats, count: Ints, due: Ints, window: int) -> tuple[Floats, NDArray[np.bool_]]:
    """Return the last `window` values of some columns of a ring, the newest first, and which of them are known."""
    back: NDArray[Any] = np.arange(window)[:, None]
    return ring[(count - 1 - back) % len(ring), due], back < count
