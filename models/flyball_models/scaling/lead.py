"""Headroom for the error at the lead time: the recent level, and z times how far the need went from it.

What a policy knows of the minute in which a replica ordered now is ready is the level of now. So the spread that
counts is that of need(k) - level(k - L), L the cold start: small where demand wanders slowly, large where it jumps. It
is a root mean square, by half of errors that are forgotten with a half-life of two hours, by half of the needs of the
last hour about their mean:

    n = max over the hold of (level + z spread), or more where present work, with some room, and its backlog need more

z tracks the promise as in :mod:`flyball_models.scaling.headroom`. Present work is held for two minutes, so that noise
does not order and cancel; a backlog is to be gone in a minute and a half, whatever the cold start: while it lasts
everybody who comes waits.
"""

import math

from flyball_models.scaling.base import Floats, Observation, Policy, whole
from flyball_models.scaling.compile import compiled

EVERY_S = 5
LAG_S = 15
SAMPLES = 12
"""Five-second means of a minute; the second largest of them is their 0.9 quantile."""
LONGEST = 60
MOST_HELD = 30
HALF_LIFE = 120.0
OF_HOUR = 0.5
DRAIN_S = 90.0
HELD_S = 120.0
STALE_S = 60.0
MOST_Z = 20.0
TAIL = 0.55
FLAT = 0.02
KNOWN = 5.0
"""Minutes after which something may be taken away."""
_COUNT, _WITHIN, _TARGET, _SHIFT, _LATE, _WORK, _ERROR, _PRESENT, _SINCE = range(9)
_SAMPLES, _RAW, _NEEDS = 9, 9 + SAMPLES, 9 + 2 * SAMPLES
_MEANS, _TARGETS = _NEEDS + LONGEST, _NEEDS + 2 * LONGEST
_FORGET = 1.0 - 0.5 ** (1.0 / HALF_LIFE)


def policy(
    promise: float, eta: float, level_minutes: int, hold_minutes: int, cold_start_s: float, delay_s: float, room: float
) -> Policy:
    """Return the policy that tracks a `promise`, a share of work in time; present work gets `room` times its replicas.

    The level is of at most half an hour, the hold at most as long; of a cold start at most half an hour counts.
    """
    late = 1.0 - promise
    means = float(max(1, min(SAMPLES, round(delay_s / EVERY_S))))
    lead = float(min(MOST_HELD, max(1, math.ceil(cold_start_s / 60.0))))
    z = TAIL * math.log(1.0 / max(late, 1e-6))
    knobs = (z, float(level_minutes), float(hold_minutes), eta, late, delay_s, means, lead, room)
    name = f"lead promise={promise:.5g} eta={eta:.3g} level={level_minutes} hold={hold_minutes} min room={room:g}"
    return Policy(name, "lead", EVERY_S, LAG_S, knobs)


@compiled
def _mean(state: Floats, first: int, count: int, window: int) -> float:
    """Mean of the last `window` before `count` of a ring of LONGEST, of those there are."""
    n = max(1, min(count, window))
    total = 0.0
    for i in range(n):
        total += state[first + (count - 1 - i) % LONGEST]
    return total / n


@compiled
def _spread(state: Floats, need: float, count: int, level_minutes: int, lead: int) -> float:
    """Learn how far the need of the last minute is from the level of `lead` minutes ago; return the spread."""
    if count > lead:
        error = need - _mean(state, _MEANS, count - lead, level_minutes)
        state[_ERROR] += max(_FORGET, 1.0 / (count - lead)) * (error * error - state[_ERROR])
    n = min(count, LONGEST)
    mean = _mean(state, _NEEDS, count, LONGEST)
    square = 0.0
    for i in range(n):
        square += (state[_NEEDS + (count - 1 - i) % LONGEST] - mean) ** 2
    return math.sqrt((1.0 - OF_HOUR) * state[_ERROR] + OF_HOUR * square / n)


@compiled
def _close(state: Floats, knobs: Floats) -> None:
    """Close a minute of samples: learn its need, its mean and what was late; set the target."""
    first = second = total = 0.0
    for i in range(SAMPLES):
        x = state[_SAMPLES + i]
        total += state[_RAW + i]
        if x > first:
            first, second = x, first
        elif x > second:
            second = x
    count = int(state[_COUNT])
    state[_NEEDS + count % LONGEST] = second
    state[_MEANS + count % LONGEST] = total / SAMPLES
    count += 1
    state[_COUNT] = count
    level = _mean(state, _MEANS, count, int(knobs[1]))
    spread = max(_spread(state, second, count, int(knobs[1]), int(knobs[7])), FLAT * level)
    if state[_WORK] > 0.0:
        late = state[_LATE] / state[_WORK]
        state[_SHIFT] = min(max(state[_SHIFT] + knobs[3] * (late - knobs[4]), -knobs[0]), MOST_Z - knobs[0])
        state[_LATE] = state[_WORK] = 0.0
    target = level + (knobs[0] + state[_SHIFT]) * spread
    state[_TARGETS + (count - 1) % MOST_HELD] = target
    for i in range(1, min(count, int(knobs[2]), MOST_HELD)):
        target = max(target, state[_TARGETS + (count - 1 - i) % MOST_HELD])
    state[_TARGET] = target


@compiled
def step(state: Floats, seen: Observation, knobs: Floats) -> float:
    """Return the target, raised to what present work and its backlog need; hold without fresh samples."""
    n = seen.ready + seen.pending
    if seen.stale_s > STALE_S:
        return n
    within = int(state[_WITHIN])
    state[_RAW + within] = seen.work_5
    total, means = 0.0, max(1, int(knobs[6]))
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
    present = knobs[8] * (seen.work_30 + seen.backlog / DRAIN_S)
    if present >= state[_PRESENT] or seen.t_s - state[_SINCE] > HELD_S:
        state[_PRESENT], state[_SINCE] = present, seen.t_s
    if state[_COUNT] < KNOWN:  # too little is known to take anything away
        return max(n, whole(state[_PRESENT]))
    return max(whole(state[_TARGET]), whole(state[_PRESENT]))
