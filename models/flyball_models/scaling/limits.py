"""Limits on changes of a recommendation: tolerance, growth, scale-in, and the interval between decisions."""

import math

from flyball_models.scaling.base import Floats
from flyball_models.scaling.compile import compiled
from flyball_models.sizing.limits import AHEAD, JUMP


@compiled
def raised(needed: float, ahead: float) -> float:
    """Return `needed`, raised to the forecast `ahead` (NaN: none) by at most :data:`AHEAD` times."""
    return needed if math.isnan(ahead) else max(needed, min(ahead, AHEAD * needed))


@compiled
def bounded(
    wanted: float, n: float, ready: float, backlog: float, tolerance: float, most_in: float, growth: float
) -> float:
    """Return `wanted` within the allowed change from `n` replicas, of which some are `ready`.

    Growth is relative to ready replicas, so pending ones do not allow more. A change of at most `tolerance` of n is
    dropped while nothing waits; at most `most_in` of n is removed. A limit of 0 is off.
    """
    if growth > 0.0:
        wanted = min(wanted, max(n, ready + JUMP, math.floor(growth * ready)))
    if abs(wanted - n) <= tolerance * n and backlog <= 0.0:
        return n
    if most_in > 0.0:
        wanted = max(wanted, n - max(1.0, math.floor(most_in * n)))
    return float(wanted)


@compiled
def rested(state: Floats, first: int, t_s: float, wanted: float, n: float, interval_s: float, turn_s: float) -> float:
    """Return `wanted`, or `n` too soon after the last change; ``state[first:first + 2]`` are its direction and time.

    Changes are `interval_s` apart, and `turn_s` if one reverses the previous one.
    """
    if wanted == n:
        return n
    turn = 1.0 if wanted > n else -1.0
    rest_s = turn_s if state[first] == -turn else interval_s
    if state[first] != 0.0 and t_s - state[first + 1] < rest_s:
        return n
    state[first], state[first + 1] = turn, t_s
    return wanted
