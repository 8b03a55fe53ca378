"""Shared functions of policies with minute windows: samples of five seconds, and rings of minutes in their state."""

from flyball_models.scaling.base import Floats
from flyball_models.scaling.compile import compiled
from flyball_models.sizing.slo_headroom import LONGEST, MOST_HELD, SAMPLES


@compiled
def mean_of_last(state: Floats, first: int, count: int, window: int) -> float:
    """Mean of the last `window` known values before `count` in the ring of LONGEST at ``state[first]``."""
    n = max(1, min(count, window))
    total = 0.0
    for i in range(n):
        total += state[first + (count - 1 - i) % LONGEST]
    return total / n


@compiled
def need_and_mean(state: Floats, samples: int, raw: int) -> tuple[float, float]:
    """Need of the ending minute, the second largest of its SAMPLES at ``state[samples]``; mean of those at `raw`."""
    first = second = total = 0.0
    for i in range(SAMPLES):
        x = state[samples + i]
        total += state[raw + i]
        if x > first:
            first, second = x, first
        elif x > second:
            second = x
    return second, total / SAMPLES


@compiled
def square_spread(state: Floats, first: int, count: int, window: int) -> float:
    """Mean square of the last `window` of the ring of LONGEST at ``state[first]`` about their mean."""
    mean = mean_of_last(state, first, count, window)
    n = min(count, window)
    square = 0.0
    for i in range(n):
        square += (state[first + (count - 1 - i) % LONGEST] - mean) ** 2
    return square / n


@compiled
def kept_high(state: Floats, first: int, count: int, hold: int, target: float) -> float:
    """Push the target of minute `count` into the ring of MOST_HELD at ``state[first]``.

    Return the maximum of `hold`.
    """
    state[first + (count - 1) % MOST_HELD] = target
    for i in range(1, min(count, max(1, hold), MOST_HELD)):
        target = max(target, state[first + (count - 1 - i) % MOST_HELD])
    return target
