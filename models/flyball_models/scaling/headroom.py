"""Headroom by spread: the recent level of work plus z times how much its minutes differ.

The need of a minute is the 0.9 quantile of its means over the delay that was promised: so many replicas serve that
share in time. With the mean work of the last minutes as level and the standard deviation of the needs of the last
hour as spread:

    n = max over the hold of (level + z spread), or more where present work and its backlog need more

A burst shorter than a cold start cannot be answered, only provided for; how much that takes is what the last hour
says, in replicas, not in proportion to the load. z is what the promise costs. It is fixed, or it tracks the promise:
each minute z += eta (share of its work that came too late - share that may), the step of an online quantile, so that
over time as much is late as was allowed, whatever the demand does (Gibbs and Candes, NeurIPS 2021). Up and down follow
the same number, so the hold is its only hysteresis.
"""

import math

from flyball_models.scaling.base import Floats, Observation, Policy, whole
from flyball_models.scaling.compile import compiled

EVERY_S = 5
LAG_S = 15
SAMPLES = 12
"""Five-second means of a minute; the second largest of them is their 0.9 quantile."""
LONGEST = 60
"""Minutes of needs that are remembered."""
STALE_S = 60.0
DRAIN_S = 60.0
_SAMPLES, _RAW, _NEEDS, _MEANS, _TARGETS = 3, 3 + SAMPLES, 30, 30 + LONGEST, 30 + 2 * LONGEST
MOST_HELD = 30
_COUNT, _WITHIN, _TARGET, _SHIFT, _LATE, _WORK = 0, 1, 2, 27, 28, 29
LEAST_Z, MOST_Z = 0.2, 20.0
TAIL = 0.55


def policy(
    z: float,
    level_minutes: int,
    hold_minutes: int,
    cold_start_s: float,
    delay_s: float = EVERY_S,
    spread_minutes: int = LONGEST,
    promise: float = 1.0,
    eta: float = 0.0,
) -> Policy:
    """Return the policy; windows are at most an hour, the hold at most half of one, the delay counts up to a minute.

    With `eta` above 0, z starts as given and tracks the `promise`, a share of work in time.
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
        1.0 - promise,
        delay_s,
    )
    name = f"headroom z={z:.3g} level={level_minutes} hold={hold_minutes} min"
    if eta > 0:
        name = f"headroom promise={promise:.5g} eta={eta:.3g} level={level_minutes} hold={hold_minutes} min"
    return Policy(name, "headroom", EVERY_S, LAG_S, knobs)


def tracking(
    promise: float, eta: float, level_minutes: int, hold_minutes: int, cold_start_s: float, delay_s: float
) -> Policy:
    """Return the policy whose z tracks the share `promise` of work in time.

    It starts where a tail that falls by e each 0.55 spreads would have it; that is forgotten within days.
    """
    z = TAIL * math.log(1.0 / max(1.0 - promise, 1e-6))
    return policy(z, level_minutes, hold_minutes, cold_start_s, delay_s, promise=promise, eta=eta)


@compiled
def _last(state: Floats, first: int, count: int, window: int) -> float:
    """Mean of the last `window` of a ring of LONGEST, of those there are."""
    n = max(1, min(count, window))
    total = 0.0
    for i in range(n):
        total += state[first + (count - 1 - i) % LONGEST]
    return total / n


@compiled
def _close(state: Floats, knobs: Floats) -> None:
    """Close a minute of samples: learn its need and its mean, set the target."""
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
    window = max(1, int(knobs[2]))
    mean = _last(state, _NEEDS, count, window)
    n = min(count, window)
    square = 0.0
    for i in range(n):
        square += (state[_NEEDS + (count - 1 - i) % LONGEST] - mean) ** 2
    if knobs[6] > 0.0:
        late = state[_LATE] / state[_WORK] if state[_WORK] > 0.0 else 0.0
        state[_SHIFT] = min(max(state[_SHIFT] + knobs[6] * (late - knobs[7]), LEAST_Z - knobs[0]), MOST_Z - knobs[0])
        state[_LATE] = state[_WORK] = 0.0
    z = knobs[0] + state[_SHIFT]
    target = _last(state, _MEANS, count, int(knobs[1])) + z * math.sqrt(square / n)
    hold = max(1, min(int(knobs[3]), MOST_HELD))
    state[_TARGETS + (count - 1) % MOST_HELD] = target
    for i in range(1, min(count, hold)):
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
    total = 0.0
    for i in range(int(knobs[5])):
        total += state[_RAW + (within - i) % SAMPLES]
    state[_SAMPLES + within] = total / knobs[5]
    state[_WORK] += seen.work_5
    if seen.backlog > knobs[8] * seen.ready:
        state[_LATE] += seen.work_5
    within += 1
    if within == SAMPLES:
        within = 0
        _close(state, knobs)
    state[_WITHIN] = within
    if state[_COUNT] < 5.0:  # too little is known to take anything away
        return max(n, whole(seen.work_30 + seen.backlog / knobs[4]))
    return max(whole(state[_TARGET]), whole(seen.work_30 + seen.backlog / knobs[4]))
