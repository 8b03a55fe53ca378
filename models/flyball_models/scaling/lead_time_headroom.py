"""Headroom for the error at the lead time: the recent level, and z times the need's deviation from it.

A policy's forecast for the minute in which a replica ordered now is ready is the current level. So the relevant spread
is that of need(k) - level(k - L), L the cold start: small if demand drifts slowly, large if it jumps. It is a root mean
square, half of errors with a half-life of two hours, half of the needs of the last hour about their mean:

    n = max over the hold of (level + z spread), or more where present work and its backlog need more

z tracks the objective as in :mod:`flyball_models.scaling.headroom`. Present work is held for two minutes, so that noise
does not order and cancel; a backlog is to be drained in a minute and a half, whatever the cold start, because new
requests wait meanwhile.
"""

import math

from flyball_models.scaling.base import Floats, Observation, Policy, whole
from flyball_models.scaling.compile import compiled
from flyball_models.scaling.headroom import FIRST, FREE, Limits
from flyball_models.scaling.limits import bounded, raised, rested
from flyball_models.scaling.minutes import kept_high, mean_of_last, need_and_mean, square_spread
from flyball_models.sizing.lead_time_headroom import DRAIN_S, FORGET, HELD_S, OF_HOUR
from flyball_models.sizing.slo_headroom import FLAT, KNOWN, LONGEST, MOST_HELD, MOST_Z, SAMPLE_S, SAMPLES, start

EVERY_S = SAMPLE_S
LAG_S = 15
STALE_S = 60.0
_COUNT, _WITHIN, _TARGET, _SHIFT, _LATE, _WORK, _ERROR, _PRESENT, _SINCE = range(9)
_SAMPLES, _RAW, _NEEDS = 9, 9 + SAMPLES, 9 + 2 * SAMPLES
_MEANS, _TARGETS = _NEEDS + LONGEST, _NEEDS + 2 * LONGEST
_REST = _TARGETS + MOST_HELD


def policy(
    objective: float,
    eta: float,
    level_minutes: int,
    hold_minutes: int,
    cold_start_s: float,
    delay_s: float,
    limits: Limits = FREE,
) -> Policy:
    """Return the policy that tracks an `objective`, a share of work in time.

    Level and hold cover at most half an hour; at most half an hour of a cold start counts.
    """
    late = 1.0 - objective
    means = float(max(1, min(SAMPLES, round(delay_s / EVERY_S))))
    lead = float(min(MOST_HELD, max(1, math.ceil(cold_start_s / 60.0))))
    z = start(objective)
    knobs = (z, float(level_minutes), float(hold_minutes), eta, late, delay_s, means, lead, *limits)
    name = f"lead objective={objective:.5g} eta={eta:.3g} level={level_minutes} hold={hold_minutes} min"
    return Policy(name, "lead_time_headroom", EVERY_S, LAG_S, knobs)


@compiled
def _spread(state: Floats, need: float, count: int, level_minutes: int, lead: int) -> float:
    """Update with the deviation of the last minute's need from the level of `lead` minutes ago; return the spread."""
    of_hour = square_spread(state, _NEEDS, count, LONGEST)
    if count <= lead:
        return math.sqrt(of_hour)
    error = need - mean_of_last(state, _MEANS, count - lead, level_minutes)
    state[_ERROR] += max(FORGET, 1.0 / (count - lead)) * (error * error - state[_ERROR])
    return math.sqrt((1.0 - OF_HOUR) * state[_ERROR] + OF_HOUR * of_hour)


@compiled
def _close(state: Floats, knobs: Floats) -> None:
    """Close a minute of samples: compute its need, its mean and its late work; set the target."""
    count = int(state[_COUNT])
    need, mean = need_and_mean(state, _SAMPLES, _RAW)
    state[_NEEDS + count % LONGEST], state[_MEANS + count % LONGEST] = need, mean
    count += 1
    state[_COUNT] = count
    level = mean_of_last(state, _MEANS, count, int(knobs[1]))
    spread = max(_spread(state, need, count, int(knobs[1]), int(knobs[7])), FLAT * level)
    if state[_WORK] > 0.0:
        late = state[_LATE] / state[_WORK]
        state[_SHIFT] = min(max(state[_SHIFT] + knobs[3] * (late - knobs[4]), -knobs[0]), MOST_Z - knobs[0])
        state[_LATE] = state[_WORK] = 0.0
    target = level + (knobs[0] + state[_SHIFT]) * spread
    state[_TARGET] = kept_high(state, _TARGETS, count, int(knobs[2]), target)


@compiled
def step(state: Floats, seen: Observation, knobs: Floats) -> float:
    """Return the target, raised to the need of present work and its backlog; hold without fresh samples."""
    n = seen.ready + seen.pending
    if seen.stale_s > STALE_S:
        return n
    within = int(state[_WITHIN])
    state[_RAW + within] = seen.work_5
    total, means = 0.0, max(1, min(int(knobs[6]), int(state[_COUNT]) * SAMPLES + within + 1))
    for i in range(means):
        total += state[_RAW + (within - i) % SAMPLES]
    state[_SAMPLES + within] = total / means
    state[_WORK] += seen.work_5
    if seen.backlog > knobs[5] * seen.ready:
        state[_LATE] += seen.work_5
    within += 1
    if within == SAMPLES:
        within = 0
        _close(state, knobs)
    state[_WITHIN] = within
    waits = seen.backlog / DRAIN_S
    present = seen.work_30 + waits
    if present >= state[_PRESENT] or seen.t_s - state[_SINCE] > HELD_S:
        state[_PRESENT], state[_SINCE] = present, seen.t_s
    if state[_COUNT] < KNOWN:  # too little is known to take anything away
        needed = max(n, max(seen.work_30, seen.work_5) / FIRST + waits)
    else:
        needed = max(state[_TARGET], state[_PRESENT])
    wanted = bounded(whole(raised(needed, seen.upper)), n, seen.ready, seen.backlog, knobs[8], knobs[9], knobs[10])
    return rested(state, _REST, seen.t_s, wanted, n, knobs[11], knobs[12])
