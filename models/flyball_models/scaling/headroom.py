"""Headroom by spread: the recent level of work plus z times the variation of its minutes.

The need of a minute is the 0.9 quantile of its means over the objective's delay: that many replicas serve this share in
time. With the mean work of the last minutes as level and the standard deviation of the needs of the last hour as
spread:

    n = max over the hold of (level + z spread), or more where present work and its backlog need more

A burst shorter than a cold start needs capacity in advance; the last hour shows how much, in replicas, not in
proportion to the load. z is fixed, or it tracks the objective: each minute z += eta (late share of the work - allowed
share), the step of an online quantile, so that over time the late share is the allowed one, whatever the demand does
(Gibbs and Candes, NeurIPS 2021). Scaling out and in follow the same number; the hold keeps it from following every
minute. A trusted forecast may raise it to the need once a replica ordered now is ready; then a smaller z suffices.

:mod:`flyball_models.sizing.slo_headroom` is the same for many workloads at once, and a test holds it to this.
"""

import math
from typing import NamedTuple

from flyball_models.scaling.base import Floats, Observation, Policy, whole
from flyball_models.scaling.compile import compiled
from flyball_models.scaling.limits import bounded, raised, rested
from flyball_models.scaling.minutes import kept_high, mean_of_last, need_and_mean, square_spread
from flyball_models.sizing.slo_headroom import (
    FLAT,
    KNOWN,
    LEAST_Z,
    LONGEST,
    MOST_Z,
    SAMPLE_S,
    SAMPLES,
    start,
)

EVERY_S = SAMPLE_S
LAG_S = 15
STALE_S = 60.0
DRAIN_S = 60.0
_SAMPLES, _RAW, _NEEDS, _MEANS, _TARGETS = 3, 3 + SAMPLES, 30, 30 + LONGEST, 30 + 2 * LONGEST
_COUNT, _WITHIN, _TARGET, _SHIFT, _LATE, _WORK, _REST = 0, 1, 2, 27, 28, 29, 180
FIRST = 0.8
"""Target utilisation before KNOWN minutes of history."""


class Limits(NamedTuple):
    """What may change at once and how often, see :mod:`flyball_models.scaling.limits`; 0 is no limit."""

    tolerance: float = 0.0
    most_in: float = 0.0
    growth: float = 0.0
    interval_s: float = 0.0
    turn_s: float = 0.0


FREE = Limits()


def policy(
    z: float,
    level_minutes: int,
    hold_minutes: int,
    cold_start_s: float,
    delay_s: float = EVERY_S,
    spread_minutes: int = LONGEST,
    objective: float = 1.0,
    eta: float = 0.0,
    limits: Limits = FREE,
) -> Policy:
    """Return the policy; windows are at most an hour, the hold at most half of one, the delay at most a minute.

    With `eta` above 0, z starts as given and tracks the `objective`, a share of work in time.
    """
    means = float(max(1, min(SAMPLES, round(delay_s / EVERY_S))))
    knobs = (
        z,
        float(level_minutes),
        float(spread_minutes),
        float(hold_minutes),
        max(DRAIN_S, cold_start_s),
        means,
        eta,
        1.0 - objective,
        delay_s,
        *limits,
    )
    name = f"headroom z={z:.3g} level={level_minutes} hold={hold_minutes} min"
    if eta > 0:
        name = f"headroom objective={objective:.5g} eta={eta:.3g} level={level_minutes} hold={hold_minutes} min"
    return Policy(name, "headroom", EVERY_S, LAG_S, knobs)


def tracking(
    objective: float,
    eta: float,
    level_minutes: int,
    hold_minutes: int,
    cold_start_s: float,
    delay_s: float,
    limits: Limits = FREE,
) -> Policy:
    """Return the policy whose z tracks the share `objective` of work in time."""
    z = start(objective)
    return policy(z, level_minutes, hold_minutes, cold_start_s, delay_s, objective=objective, eta=eta, limits=limits)


@compiled
def _close(state: Floats, knobs: Floats) -> None:
    """Close a minute of samples: compute its need and its mean, set the target."""
    count = int(state[_COUNT])
    need, mean = need_and_mean(state, _SAMPLES, _RAW)
    state[_NEEDS + count % LONGEST], state[_MEANS + count % LONGEST] = need, mean
    count += 1
    state[_COUNT] = count
    square = square_spread(state, _NEEDS, count, max(1, int(knobs[2])))
    if knobs[6] > 0.0 and state[_WORK] > 0.0:
        late = state[_LATE] / state[_WORK]
        state[_SHIFT] = min(max(state[_SHIFT] + knobs[6] * (late - knobs[7]), LEAST_Z - knobs[0]), MOST_Z - knobs[0])
        state[_LATE] = state[_WORK] = 0.0
    z = knobs[0] + state[_SHIFT]
    level = mean_of_last(state, _MEANS, count, int(knobs[1]))
    target = level + z * max(math.sqrt(square), FLAT * level)
    state[_TARGET] = kept_high(state, _TARGETS, count, int(knobs[3]), target)


@compiled
def step(state: Floats, seen: Observation, knobs: Floats) -> float:
    """Return the target, raised to the need of a forecast, or of present work and backlog; hold without samples."""
    n = seen.ready + seen.pending
    if seen.stale_s > STALE_S:
        return n
    within = int(state[_WITHIN])
    state[_RAW + within] = seen.work_5
    total, means = 0.0, min(int(knobs[5]), int(state[_COUNT]) * SAMPLES + within + 1)
    for i in range(means):
        total += state[_RAW + (within - i) % SAMPLES]
    state[_SAMPLES + within] = total / means
    state[_WORK] += seen.work_5
    if seen.backlog > knobs[8] * seen.ready:
        state[_LATE] += seen.work_5
    within += 1
    if within == SAMPLES:
        within = 0
        _close(state, knobs)
    state[_WITHIN] = within
    waits = seen.backlog / knobs[4]
    if state[_COUNT] < KNOWN:  # too little is known to take anything away
        needed = max(n, max(seen.work_30, seen.work_5) / FIRST + waits)
    else:
        needed = max(state[_TARGET], seen.work_30 + waits)
    wanted = whole(raised(needed, seen.upper))
    wanted = bounded(wanted, n, seen.ready, seen.backlog, knobs[9], knobs[10], knobs[11])
    return rested(state, _REST, seen.t_s, wanted, n, knobs[12], knobs[13])
