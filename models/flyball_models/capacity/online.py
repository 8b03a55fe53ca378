"""Online estimate of a replica's capacity: a level observed at saturation, and a curve below it.

A lightly loaded server shows only a lower bound of its capacity (its load is a censored observation). Its capacity
shows while requests wait all the time and the GPUs work: then work served is capacity. So the logarithm of capacity is
a random walk, observed at saturated windows with a few per cent of noise (a Kalman filter of one state; Kalman 1960),
with innovations clipped (Huber 1964) and the variance opened after some surprises of the same sign, so that a change of
speed is followed within a few windows.

Between saturations the curve is used. In a batching server the latency of a request grows linearly with the batch (time
per token = alpha + beta batch), so at the share u of the concurrency of the knee

    X(u) = C u / (a + (1 - a) u),    0 <= a <= 1

monotone and concave. The line is fitted to stay per work against concurrency in all windows, by least squares with
forgetting, its slope drawn to that of a = 1/2 while concurrency has varied little. A window at u then estimates C as X
/ (u / (a + (1 - a) u)), with a variance that grows with the distance from the knee; it can shift the level but hardly
reduces its variance. With an objective for the time per token, capacity is X at the u that meets it. A time to the
first token beyond its objective counts as a wait that is too long, and a full cache of keys and values limits a replica
before its compute does.
"""

from typing import NamedTuple

import numpy as np

from flyball_models.capacity.base import Bools, Estimate, Floats, Limits, Point, empty, is_late, known_or

NOISE = 0.05
"""Standard deviation of the logarithm of the work served in a saturated window."""
DRIFT = 0.0037
"""Standard deviation of the change of the level per window: some 20 % in a day of windows of 30 s."""
FIRST = 0.3
"""Error after one saturated window, divided by their number if there are more: a single one may be misleading."""
STRETCH = 0.4
"""Error per e-fold that the curve extrapolates."""
LOWEST = 0.3
"""Share of the knee's concurrency below which a window is ignored."""
CLIP = 2.5
RUN_AT_KNEE, RUN_BELOW = 2, 4
"""Surprises in a row that count as a change."""
LEAST_QUEUE, LEAST_BUSY = 1.0, 0.7
"""Minimum of waiting requests per replica, and of utilisation, at which a window counts as saturated."""
FULL_CACHE = 0.95
"""Share of the cache of keys and values at which requests are queued or preempted for lack of it."""
FORGET_LINE = 0.99
PRIOR_SPREAD = 0.02
"""Relative variance of the concurrency at which data and prior determine the line equally."""
DECAY_PROVEN = 0.5 ** (1.0 / 1440.0)
"""Share of the proven work that is left after a window of 30 s: half of it is left after twelve hours."""
RATE_KNEE = 0.2


class State(NamedTuple):
    """All [N]: `level` and `knee` are logarithms; `run` counts surprises, by sign; `proven` is the lower bound.

    ``line`` [5, N] are the sums of the fit: of weights, concurrency, stay, and the products of concurrency with both.
    """

    level: Floats
    variance: Floats
    windows: Floats
    run: Floats
    knee: Floats
    knee_token_s: Floats
    line: Floats
    proven: Floats


class WindowEstimate(NamedTuple):
    """The estimate under the limits, which windows were saturated, and the most work served in time."""

    estimate: Estimate
    saturated: Bools
    proven: Floats


def init(n: int) -> State:
    """Return the state of `n` workloads without data."""
    return State(
        level=empty(n),
        variance=np.ones(n),
        windows=np.zeros(n),
        run=np.zeros(n),
        knee=empty(n),
        knee_token_s=empty(n),
        line=np.zeros((5, n)),
        proven=empty(n),
    )


def saturated(point: Point, limits: Limits, knee: Floats) -> Bools:
    """Return where a window shows capacity: requests wait all the time or too long, and the GPUs work.

    Work must continue: a queue before idle replicas is a fault of the load balancer, not the limit of capacity. Without
    utilisation and concurrency there is no estimate. A full cache counts as work, whatever the GPUs do.
    """
    waits = (point.queue >= LEAST_QUEUE) | (np.isnan(point.queue) & (point.wait_s >= limits.wait_s))
    waits |= point.first_token_s >= limits.first_token_s
    crammed = point.kv_cache >= FULL_CACHE
    waits |= np.isnan(point.queue) & crammed
    full = known_or(point.concurrency, np.inf) >= 0.5 * known_or(np.exp(knee), 0.0)
    works = np.where(np.isnan(point.busy), ~np.isnan(point.concurrency), point.busy >= LEAST_BUSY) | crammed
    slow = np.isnan(knee) & (point.token_s >= limits.token_s)
    return (point.served > 0) & ((waits & full & works) | slow)


def step(state: State, point: Point, limits: Limits) -> tuple[State, WindowEstimate]:
    """Update with a window of each workload; where it is NaN, only time passes."""
    with np.errstate(invalid="ignore", divide="ignore"):
        full = saturated(point, limits, state.knee)
        line = _line(state.line, point)
        shape = _shape(line, state.knee)
        u = point.concurrency / np.exp(state.knee)
        below = ~full & (u >= LOWEST) & (u <= 1.5) & (point.served > 0) & (state.windows > 0)
        bridge = np.where(below, _stay(shape, u) / u, 1.0)
        updated = _level(state, np.log(point.served * bridge), np.log(bridge), full, below)
        updated = updated._replace(
            line=line,
            knee=_tracked(state.knee, np.log(point.concurrency), full),
            knee_token_s=_tracked(state.knee_token_s, np.log(point.token_s), full),
            proven=_proven(state.proven, point, limits, full),
        )
        value = np.exp(updated.level) * _in_time(updated, limits)
        error = np.sqrt(updated.variance + (FIRST / np.maximum(updated.windows, 1.0)) ** 2)
    known = ~np.isnan(value)
    return updated, WindowEstimate(Estimate(value, np.where(known, error, np.nan)), full, updated.proven)


def _stay(shape: Floats, u: Floats) -> Floats:
    """Stay of a request at the share `u` of the knee's concurrency, as a share of that at the knee."""
    return shape + (1.0 - shape) * u


def _level(state: State, seen: Floats, bridged: Floats, full: Bools, below: Bools) -> State:
    prior = np.minimum(state.variance + DRIFT**2, 1.0)
    noise = NOISE**2 + (STRETCH * bridged) ** 2
    off = seen - state.level
    spread = np.sqrt(prior + noise)
    used = (full | below) & np.isfinite(off)
    sign = np.where(np.abs(off) > CLIP * spread, np.sign(off), 0.0)
    run = np.where(used, np.where((sign != 0) & (sign * state.run > 0), state.run + sign, sign), state.run)
    changed = used & (np.abs(run) >= np.where(full, RUN_AT_KNEE, RUN_BELOW))
    prior = np.where(changed, prior + np.where(changed, off, 0.0) ** 2, prior)
    off = np.where(changed, off, np.clip(off, -CLIP * spread, CLIP * spread))
    gain = prior / (prior + noise)
    after = (1.0 - gain) * prior
    after = np.where(below, np.maximum(after, np.minimum(prior, noise / 2.0)), after)
    first = full & np.isnan(state.level) & np.isfinite(seen)
    return state._replace(
        level=np.where(first, seen, np.where(used, state.level + gain * off, state.level)),
        variance=np.where(first, NOISE**2, np.where(used, after, np.minimum(state.variance + DRIFT**2, 1.0))),
        windows=state.windows + full,
        run=np.where(changed, 0.0, run),
    )


def _line(sums: Floats, point: Point) -> Floats:
    n, stay = point.concurrency, point.concurrency / point.served
    used = (n > 0) & (stay > 0) & np.isfinite(stay)
    row = np.where(used, np.stack([np.ones_like(n), n, stay, n * n, n * stay]), 0.0)
    return np.where(used, FORGET_LINE, 1.0) * sums + row


def _shape(sums: Floats, knee: Floats) -> Floats:
    """Time of a request alone as a share of that at the knee, from the line's elasticity at the mean concurrency."""
    weight, n, stay, squares, products = np.where(sums[0] > 0, sums, np.nan)
    n, stay = n / weight, stay / weight
    spread = np.maximum(squares / weight / n**2 - 1.0, 0.0)
    u = n / np.exp(knee)
    elastic = (products / weight / (n * stay) - 1.0 + PRIOR_SPREAD * u / (1.0 + u)) / (spread + PRIOR_SPREAD)
    elastic = np.clip(elastic, 0.0, 1.0)
    return known_or((1.0 - elastic) / (1.0 - elastic + elastic / u), 0.5)


def _tracked(before: Floats, now: Floats, where: Bools) -> Floats:
    return np.where(where & np.isfinite(now), known_or(before + RATE_KNEE * (now - before), now), before)


def _proven(before: Floats, point: Point, limits: Limits, full: Bools) -> Floats:
    """Most work served in time; it fades, and saturation below it ends it."""
    late = is_late(point, limits)
    fits = (point.served > 0) & ~late & ~full
    proven = np.where(fits, np.fmax(before * DECAY_PROVEN, point.served), before)
    return np.where(full, np.fmin(proven, point.served), proven)


def _in_time(state: State, limits: Limits) -> Floats:
    """Share of the capacity at the knee that meets the objective for the time per token.

    1 if none is given or it is unknown.
    """
    shape = np.minimum(_shape(state.line, state.knee), 0.999)
    allowed = limits.token_s / np.exp(state.knee_token_s)
    u = np.clip((allowed - shape) / (1.0 - shape), 0.02, 1.0)
    return known_or(u / _stay(shape, u), 1.0)
