"""Detects hangs: a device that is busy but does no work, as when a collective waits for a peer that is gone.

The driver counts a kernel that spins as full utilisation, while power and SM activity fall to a share of what they are
when the device works. A device hangs when that has lasted `least_s` seconds and at least three ticks:

    utilisation >= busy, power <= share * usual power, SM activity <= share * usual activity where it is known

and power stays below the level at which a power limit would hold it. The usual values are means over the ticks in which
the device was busy and did not look hung; such ticks must have been observed for `warm_s`. Until the present work has
run for `settled_s`, they may be those of the same work elsewhere (:func:`adopt`). It may be other work of that name,
and ranks that are ready spin until the last one is: there a hang must have lasted `start_s`, with power below `spin` of
the limit and SM activity below `spin_activity` where they are known, and is taken for other work after `most_s`. The
rule and its constants are ours.

Shapes: N devices.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flyball_models.anomaly.peers import Floats


class Config(NamedTuple):
    """See the module.

    `usual_s` is the time constant of the means, `capped` the share of the limit at which a power cap explains low
    activity. Names that end in `_s` are times in s, the others shares.
    """

    busy: float = 0.95
    share: float = 0.5
    least_s: float = 15.0
    warm_s: float = 120.0
    usual_s: float = 600.0
    settled_s: float = 30.0
    start_s: float = 300.0
    spin: float = 0.35
    spin_activity: float = 0.25
    most_s: float = 3600.0
    capped: float = 0.85


DEFAULT = Config()


class State(NamedTuple):
    """All [N]: mean power in W and SM activity while busy, and times in s.

    `seen_s` is the time in which both were observed, `hung_s` that for which it has looked hung, and `worked_s` that in
    which its present work has run on it.
    """

    power_w: Floats
    activity: Floats
    seen_s: Floats
    hung_s: Floats
    worked_s: Floats


class Inputs(NamedTuple):
    """All [N]: utilisation and SM activity in 0..1, power and power limit in W; NaN if unknown."""

    utilization: Floats
    activity: Floats
    power_w: Floats
    limit_w: Floats


def init(n: int) -> State:
    """Return the state of `n` devices that were never busy."""
    return State(*(np.zeros(n, np.float32) for _ in State._fields))


def adopt(state: State, slots: NDArray[np.int64], power_w: Floats, activity: Floats, config: Config = DEFAULT) -> State:
    """Return the state with usual values for K devices whose work has run elsewhere.

    `slots` int64 [K] are the devices; `power_w` in W and `activity` in 0..1, [K], are what they show at work.
    """
    power, active, seen = state.power_w.copy(), state.activity.copy(), state.seen_s.copy()
    power[slots], active[slots], seen[slots] = power_w, activity, np.float32(config.warm_s)
    return state._replace(power_w=power, activity=active, seen_s=seen)


def is_settled(state: State, slots: list[int], config: Config = DEFAULT) -> bool:
    """Whether the present work of some devices has run on one of them."""
    return bool((state.worked_s[slots] >= config.settled_s).any())


def step(state: State, x: Inputs, period_s: float, config: Config = DEFAULT) -> tuple[State, NDArray[np.bool_]]:
    """Update with a tick; return hung bool [N]. A device with unknown utilisation or power is unchanged."""
    other = (state.worked_s < config.settled_s) & (state.hung_s >= config.most_s)
    if other.any():
        state = State(*(np.where(other, np.float32(0.0), a) for a in state))
    with np.errstate(invalid="ignore"):
        known = np.isfinite(x.utilization) & np.isfinite(x.power_w)
        busy = known & (x.utilization >= config.busy)
        idles = np.isnan(x.activity) | (x.activity <= config.share * state.activity)
        free = ~(x.power_w >= config.capped * x.limit_w)
        warm = state.seen_s >= config.warm_s
        settled = state.worked_s >= config.settled_s
        spins = settled | ~((x.power_w > config.spin * x.limit_w) | (x.activity > config.spin_activity))
        looks = busy & warm & free & spins & idles & (x.power_w <= config.share * state.power_w)
    period = np.float32(period_s)
    works = busy & ~looks
    seen = np.where(works, state.seen_s + period, state.seen_s)
    gain = np.where(works, np.maximum(period / np.maximum(seen, period), period / np.float32(config.usual_s)), 0.0)
    gain = np.minimum(gain, 1.0).astype(np.float32)
    power = state.power_w + gain * np.where(works, x.power_w - state.power_w, np.float32(0.0))
    active = works & np.isfinite(x.activity)
    activity = state.activity + gain * np.where(active, x.activity - state.activity, np.float32(0.0))
    hung = np.where(looks, state.hung_s + period, np.where(known, np.float32(0.0), state.hung_s))
    worked = np.where(works, state.worked_s + period, state.worked_s)
    begins = ~settled & (worked >= config.settled_s) & (seen > worked)
    if begins.any():  # what it shows from now on is its own
        power, seen = np.where(begins, x.power_w, power), np.where(begins, period, seen)
        activity = np.where(begins, np.where(active, x.activity, np.float32(0.0)), activity)
    least_s = np.where(settled, config.least_s, config.start_s)
    return State(power, activity, seen, hung, worked), looks & (hung >= np.maximum(least_s, 3.0 * period_s))
