"""Shadow selection: many policies run in simulation, and the one with the least cost for this workload acts.

Each member of :data:`MEMBERS` controls its own fleet in a fluid simulation of five-second samples, on the work that
arrived: replicas that are ready after the cold start, a backlog, work that waits too long, billed replica seconds. So
the cost and late work of every member are known at all times, without trials on real requests (full information, not a
bandit). All members get the same demand, so differences are not noise.

The member that acts is the leader by discounted cost (Herbster and Warmuth, Machine Learning 32, 1998, for the shifting
best expert; a leader that is changed only where the gain is worth it needs no random draw):

    cost of a member = sum over the memory of (billed replica seconds + price x late work)

The price is the multiplier of the objective, by dual ascent: each minute log price += eta (real work that was late -
work that may be) / usual work, so that over time the late share is the allowed one, whatever the demand does. Most
members use fixed multiples of the spread, so a price also selects the caution: late work is allowed where it is
expensive to avoid, which one multiple for all hours cannot do. Others use a fixed target utilisation: a sudden jump of
demand to a multiple is not in the spread of the hour before. If such jumps are rare, a short memory and a fast price
react to the last one and are too late for the next: both must be slow.

The leader determines the headroom; present work and backlog of the real fleet can raise it, as in
:mod:`flyball_models.scaling.lead_time_headroom`.
"""

import math
from typing import NamedTuple

import numpy as np

from flyball_models.scaling.base import Floats, Observation, Policy, counted, whole
from flyball_models.scaling.compile import compiled
from flyball_models.scaling.minutes import kept_high, mean_of_last, need_and_mean, square_spread
from flyball_models.sizing.lead_time_headroom import FORGET
from flyball_models.sizing.slo_headroom import FLAT, KNOWN, LONGEST, MOST_HELD, SAMPLE_S, SAMPLES, TAIL

EVERY_S = SAMPLE_S
LAG_S = 15
STALE_S = 60.0
DRAINED_S = 30.0
"""Seconds for which a stopped replica of a shadow fleet is billed."""
ERROR_LEVEL = 5
"""Minutes of the level whose error at the lead time is measured."""
HOLD_MINUTES = 10
FIRST_PRICE = 0.1
"""Initial price times 1 / (allowed late share): replica seconds per second of late work."""
MOST_LOG_PRICE = 10.0
MARGIN = 0.01
"""Minimum saving of a change of the leader, as a share of the memory's demand."""
LONGEST_COLD = 360
"""Longest cold start of a shadow fleet, in samples."""
LAG = LAG_S // SAMPLE_S


class Member(NamedTuple):
    """A simulated policy: ``z`` times the spread above the level, or present work over a target utilisation.

    ``of_hour`` is the share of the last hour's needs in the squared spread, the rest is the error at the lead time;
    ``level`` is minutes. Present work counts ``room`` times, is held for ``keep_s``, and its backlog is to be drained
    in ``drain_s``.
    """

    name: str
    z: float
    of_hour: float = 1.0
    level: int = 3
    room: float = 1.0
    drain_s: float = 90.0
    keep_s: float = 120.0


MEMBERS = (
    *(Member(f"headroom z={z:g}", z) for z in (0.4, 0.9, 1.8, 3.5, 7.0, 14.0)),
    *(Member(f"lead z={z:g}", z, of_hour=0.5, level=5) for z in (0.5, 1.2, 2.4, 4.8)),
    *(Member(f"calm z={z:g}", z, room=0.85, drain_s=150.0, keep_s=60.0) for z in (0.3, 0.8, 1.5)),
    *(Member(f"share u={u:g}", 0.0, room=1.0 / u) for u in (0.6, 0.4, 0.25, 0.15)),
)
_HEADROOMS = 6
_Z, _OF_HOUR, _LEVEL, _ROOM, _DRAIN, _KEEP = range(6)
_TABLE = np.array([member[1:] for member in MEMBERS], np.float64)
_COUNT = len(MEMBERS)

# What all members share.
_TICKS, _WITHIN, _MINUTES, _ERROR, _PRICE, _LEADER, _LATE, _WORK, _PRESENT, _SINCE, _DEMAND, _WAITED = range(12)
_SERVING, _SAMPLES, _RAW, _NEEDS = 12, 16, 16 + SAMPLES, 16 + 2 * SAMPLES
_MEANS = _NEEDS + LONGEST
_FIRST = _MEANS + LONGEST
MINUTES, PRESENT = _MINUTES, _PRESENT
"""Places in the state: number of known minutes, and the held present need."""
# Of each member, from its own first place on.
_READY, _PENDING, _BACKLOG, _BILLED, _OWN_LATE, _COST, _OVERDUE, _TARGET, _DESIRED, _OWN_PRESENT, _OWN_SINCE = range(11)
_TARGETS = 12
_DELAYED = _TARGETS + MOST_HELD
_ORDERS = _DELAYED + LAG
_RING = LONGEST_COLD + 8
_SIZE = _ORDERS + _RING
NEEDED = _FIRST + _COUNT * _SIZE
"""Number of floats of state."""
_ALLOWED, _DELAY, _MEANS_OF, _LEAD, _COLD, _ETA, _MEMORY, _MARGIN, _BEHIND = range(9)


def knobs_of(
    allowed: Floats, delay_s: Floats, cold_start_s: Floats, memory_minutes: float, margin: float, eta: float, lag_s: int
) -> Floats:
    """Parameters of J workloads, float64 [J, 9]: allowed late shares, delays and cold starts [J] in seconds.

    Work is observed `lag_s` (at most :data:`LAG_S`) after its replicas; for the rest see :func:`policy`.
    """
    same = np.ones(len(allowed))
    columns = (
        allowed,
        delay_s,
        np.clip(np.round(delay_s / EVERY_S), 1, SAMPLES),
        np.clip(np.ceil(cold_start_s / 60.0), 1, MOST_HELD),
        np.clip(np.ceil(cold_start_s / EVERY_S), 1, LONGEST_COLD),
        eta * same,
        memory_minutes * same,
        margin * same,
        min(LAG, lag_s // EVERY_S) * same,
    )
    return np.stack(columns, axis=1)


def policy(
    objective: float, cold_start_s: float, delay_s: float, memory_minutes: float, margin: float, eta: float
) -> Policy:
    """Return the policy that meets an `objective`, a share of work in time, by the cheapest member.

    Costs decay with a time constant of `memory_minutes`. The leader changes if the gain over a memory exceeds a share
    `margin` of its demand; `eta` is the step of the price.
    """
    late, delay, cold = np.array([[1.0 - objective], [delay_s], [cold_start_s]])
    knobs = tuple(float(x) for x in knobs_of(late, delay, cold, memory_minutes, margin, eta, LAG_S)[0])
    name = f"shadow objective={objective:.5g} memory={memory_minutes / 1440:g} d margin={margin:g} eta={eta:g}"
    return Policy(name, "shadow_selection", EVERY_S, LAG_S, knobs)


class Standing(NamedTuple):
    """Comparison of the members: index of the ``leader``, and the ``price`` of a second of late work.

    The price is in replica seconds. Over the memory: ``work`` that arrived [replica-hours], and by member the ``hours``
    billed [replica-hours] and the ``late`` share of the work.
    """

    leader: int
    price: float
    work: float
    hours: Floats
    late: Floats


def standing(state: Floats) -> Standing:
    """Comparison of the members, from the policy's state."""
    own = state[_FIRST:NEEDED].reshape(_COUNT, _SIZE)
    work, price = float(state[_DEMAND]), math.exp(float(state[_PRICE]))
    late = own[:, _OVERDUE] / max(work, 1e-9)
    return Standing(int(state[_LEADER]) % _COUNT, price, work / 3600.0, own[:, _COST] / 3600.0, late)


def next_best(of: Standing) -> tuple[int, float]:
    """Index of the second-best member, and the share by which it is dearer."""
    cost = of.hours + of.price * of.late * of.work
    after = min((i for i in range(len(cost)) if i != of.leader), key=lambda i: float(cost[i]))
    return after, float(cost[after] / max(cost[of.leader], 1e-9) - 1.0)


@compiled
def _begin(state: Floats, n: float, allowed: float) -> None:
    """Give each member the existing fleet; the first leader has the caution of a steep tail."""
    state[_PRICE] = math.log(FIRST_PRICE / max(allowed, 1e-6))
    z, nearest = max(0.1, TAIL * math.log(1.0 / max(allowed, 1e-6))), 1e300
    for i in range(_COUNT):
        own = _FIRST + i * _SIZE
        state[own + _READY] = state[own + _DESIRED] = n
        for j in range(LAG):
            state[own + _DELAYED + j] = n
        if i < _HEADROOMS and abs(math.log(_TABLE[i, _Z] / z)) < nearest:
            nearest = abs(math.log(_TABLE[i, _Z] / z))
            state[_LEADER] = i


@compiled
def _close(state: Floats, lead: int) -> None:
    """Close a minute of samples: compute its need, its mean, and the deviation from the earlier level."""
    count = counted(state[_MINUTES])
    need, mean = need_and_mean(state, _SAMPLES, _RAW)
    state[_NEEDS + count % LONGEST], state[_MEANS + count % LONGEST] = need, mean
    count += 1
    state[_MINUTES] = count
    if count > lead:
        error = need - mean_of_last(state, _MEANS, count - lead, ERROR_LEVEL)
        state[_ERROR] += max(FORGET, 1.0 / (count - lead)) * (error * error - state[_ERROR])


@compiled
def _late(before: float, after: float, limit: float) -> float:
    """Late share of a sample's work, for a backlog that changes linearly from `before` to `after`."""
    low, high = min(before, after), max(before, after)
    if low > limit:
        return 1.0
    return (high - limit) / (high - low) if high > limit else 0.0


@compiled
def _serve(state: Floats, own: int, tick: int, work: float, delay_s: float) -> None:
    """Serve a sample with a member's fleet."""
    slot = own + _ORDERS + tick % _RING
    state[own + _READY] += state[slot]
    state[own + _PENDING] -= state[slot]
    state[slot] = 0.0
    ready, before = state[own + _READY], state[own + _BACKLOG]
    served = min(before + EVERY_S * work, EVERY_S * ready)
    after = before + EVERY_S * work - served
    if after < 1e-9:
        after = 0.0
    state[own + _BACKLOG] = after
    state[own + _OWN_LATE] += EVERY_S * work * _late(before, after, delay_s * ready)
    state[own + _BILLED] += EVERY_S * (ready + state[own + _PENDING])


@compiled
def _steer(state: Floats, own: int, tick: int, wanted: float, cold: int) -> None:
    """Order a member's missing replicas; cancel the newest orders and stop surplus replicas."""
    wanted = max(wanted, 1.0)
    change = wanted - state[own + _READY] - state[own + _PENDING]
    if change > 0.0:
        state[own + _ORDERS + (tick + cold) % _RING] += change
        state[own + _PENDING] += change
        return
    less, back = -change, cold
    while less > 0.0 and back > 0 and state[own + _PENDING] > 0.0:
        slot = own + _ORDERS + (tick + back) % _RING
        cancelled = min(less, state[slot])
        state[slot] -= cancelled
        state[own + _PENDING] -= cancelled
        less -= cancelled
        back -= 1
    less = min(less, state[own + _READY])  # orders made under a longer cold start cannot be cancelled
    state[own + _READY] -= less
    state[own + _BILLED] += DRAINED_S * less


@compiled
def _desired(state: Floats, own: int, i: int, seen: Observation) -> float:
    """A member's desired replicas for its own fleet."""
    present = _held(state, own + _OWN_PRESENT, i, seen.work_30, state[own + _BACKLOG], seen.t_s)
    if state[_MINUTES] < KNOWN:
        return float(max(state[own + _READY] + state[own + _PENDING], whole(present)))
    return whole(max(state[own + _TARGET], present))


@compiled
def _held(state: Floats, at: int, i: int, work: float, backlog: float, t_s: float) -> float:
    """Present need by a member's rule, held: ``state[at:at + 2]`` are the need and its time."""
    present = _TABLE[i, _ROOM] * work + backlog / _TABLE[i, _DRAIN]
    if present >= state[at] or t_s - state[at + 1] > _TABLE[i, _KEEP]:
        state[at], state[at + 1] = present, t_s
    return float(state[at])


@compiled
def _judge(state: Floats, knobs: Floats) -> None:
    """Update the price, add the minute's costs, set the members' targets, and change the leader if it pays."""
    usual = max(1.0, mean_of_last(state, _MEANS, counted(state[_MINUTES]), LONGEST))
    missed = (state[_LATE] - knobs[_ALLOWED] * state[_WORK]) / (SAMPLES * usual)
    state[_PRICE] = min(max(state[_PRICE] + knobs[_ETA] * missed, 0.0), MOST_LOG_PRICE)
    state[_LATE] = state[_WORK] = 0.0
    count, keep, price = counted(state[_MINUTES]), 1.0 - 1.0 / max(1.0, knobs[_MEMORY]), math.exp(state[_PRICE])
    state[_DEMAND] = keep * state[_DEMAND] + 60.0 * mean_of_last(state, _MEANS, count, 1)
    of_hour = square_spread(state, _NEEDS, count, LONGEST)
    best, least, current = 0, 1e300, 0.0
    for i in range(_COUNT):
        own = _FIRST + i * _SIZE
        state[own + _COST] = keep * state[own + _COST] + state[own + _BILLED]
        state[own + _OVERDUE] = keep * state[own + _OVERDUE] + state[own + _OWN_LATE]
        state[own + _BILLED] = state[own + _OWN_LATE] = 0.0
        cost = state[own + _COST] + price * state[own + _OVERDUE]
        if cost < least:
            best, least = i, cost
        if i == counted(state[_LEADER]):
            current = cost
        level = mean_of_last(state, _MEANS, count, int(_TABLE[i, _LEVEL]))
        square = _TABLE[i, _OF_HOUR] * of_hour + (1.0 - _TABLE[i, _OF_HOUR]) * state[_ERROR]
        target = level + _TABLE[i, _Z] * max(math.sqrt(square), FLAT * level)
        state[own + _TARGET] = kept_high(state, own + _TARGETS, count, HOLD_MINUTES, target)
    if current - least > knobs[_MARGIN] * knobs[_MEMORY] * 60.0 * usual:
        state[_LEADER] = best


@compiled
def step(state: Floats, seen: Observation, knobs: Floats) -> float:
    """Return the leader's number, raised to the need of the real fleet's backlog; hold without fresh samples.

    The backlog may be NaN: unknown.
    """
    n = seen.ready + seen.pending
    if seen.stale_s > STALE_S:
        return n
    tick = counted(state[_TICKS])
    if tick == 0:
        _begin(state, n, knobs[_ALLOWED])
    state[_TICKS] = tick + 1
    within, work = counted(state[_WITHIN]) % SAMPLES, seen.work_5
    state[_RAW + within] = work
    total, means = 0.0, max(1, min(int(knobs[_MEANS_OF]), tick + 1))
    for i in range(means):
        total += state[_RAW + (within - i) % SAMPLES]
    state[_SAMPLES + within] = total / means
    behind, serving = int(knobs[_BEHIND]), seen.ready  # replicas that served this sample
    if 0 < behind <= tick:
        serving = state[_SERVING + (tick - behind) % LAG]
    state[_SERVING + tick % LAG] = seen.ready
    waits = 0.0
    if seen.backlog == seen.backlog:  # while the backlog is unknown (NaN), nothing is judged
        waits = seen.backlog
        state[_WORK] += work
        state[_LATE] += work * _late(state[_WAITED], waits, knobs[_DELAY] * serving)
        state[_WAITED] = waits
    state[_WITHIN] = (within + 1) % SAMPLES
    for i in range(_COUNT):
        _serve(state, _FIRST + i * _SIZE, tick, work, knobs[_DELAY])
    if within == SAMPLES - 1:
        _close(state, int(knobs[_LEAD]))
        _judge(state, knobs)
    for i in range(_COUNT):
        own = _FIRST + i * _SIZE
        state[own + _DESIRED] = _desired(state, own, i, seen)
        late = own + _DELAYED + tick % LAG  # observations are old: a recommendation reaches the fleet that much later
        wanted, state[late] = state[late], state[own + _DESIRED]
        _steer(state, own, tick, wanted, int(knobs[_COLD]))
    leader = counted(state[_LEADER]) % _COUNT
    own = _FIRST + leader * _SIZE
    present = _held(state, _PRESENT, leader, seen.work_30, waits, seen.t_s)
    if state[_MINUTES] < KNOWN:  # too little is known to take anything away
        return max(n, whole(present))
    return whole(max(state[own + _TARGET], present))
