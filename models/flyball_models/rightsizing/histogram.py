"""Histograms with exponential buckets whose samples lose half their weight every half-life.

A sample at time t is added with weight w 2^((t - reference) / half_life), so that existing weights stay unchanged.
Before the factor grows large the reference moves on by whole half-lives: scaling by powers of two is exact, and nothing
overflows in years. The form is that of the Kubernetes vertical autoscaler (kubernetes/autoscaler,
vertical-pod-autoscaler/pkg/recommender/util).

Shapes: N series, B buckets. States are donated: one that was passed in must not be used again.
"""

import math
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

MOST_HALF_LIVES = 32
"""Half-lives after which the reference moves on."""
Floats = NDArray[np.float64]
Rows = NDArray[np.int64]


class Grid(NamedTuple):
    """Buckets: the first ends at `first`, each further one is `ratio` times as wide, the last holds `most`."""

    first: float
    ratio: float
    most: float

    @property
    def size(self) -> int:
        """Number of buckets."""
        return len(_edges(self))

    @property
    def ends(self) -> Floats:
        """Upper end of each bucket, float64 [B]; larger values count in the last one."""
        return _edges(self)

    def find(self, x: Floats) -> Rows:
        """Bucket of each value; a bucket includes its upper end."""
        return np.minimum(np.searchsorted(_edges(self), x, side="left"), self.size - 1)


@cache
def _edges(grid: Grid) -> Floats:
    first, ratio, most = grid
    if not (first > 0 and ratio > 1 and most > first):
        raise ValueError(f"histogram: {grid}; pass first > 0, ratio > 1 and most > first")
    count = math.ceil(math.log(most / first * (ratio - 1) + 1) / math.log(ratio))
    edges = first * (ratio ** np.arange(1.0, count + 1) - 1) / (ratio - 1)
    edges.flags.writeable = False
    return edges


class State(NamedTuple):
    """weights float32 [B, N], as of the time reference_s float64 []."""

    weights: NDArray[np.float32]
    reference_s: Floats


def init(n: int, grid: Grid) -> State:
    """Return `n` empty histograms."""
    return State(np.zeros((grid.size, n), np.float32), np.zeros(()))


def add(
    state: State, x: Floats, weight: Floats | float, series: Rows, time_s: float, grid: Grid, half_life_s: float
) -> State:
    """Add a sample `x` [S] of `weight` [S] to each of `series` int [S], each named once, at one time."""
    state = _moved(state, time_s, half_life_s)
    factor = 2.0 ** ((time_s - float(state.reference_s)) / half_life_s)
    state.weights[grid.find(x), series] += np.asarray(factor * weight, np.float32)
    return state


def weights_at(state: State, series: Rows, time_s: float, half_life_s: float) -> Floats:
    """Weights of some series [S] at a time, float64 [B, S]: a sample of that time has its full weight."""
    factor = 2.0 ** min(1000.0, (float(state.reference_s) - time_s) / half_life_s)
    found: Floats = np.multiply(state.weights[:, series], factor, dtype=np.float64)
    return found


def percentile(weights: Floats, p: float, grid: Grid) -> Floats:
    """Upper end of the bucket in which the share `p` of the weight [B, S] is reached, float64 [S]; NaN without weight.

    It is at least the exact weighted percentile, and at most a bucket above it.
    """
    total = weights.cumsum(axis=0)
    reached = total >= p * total[-1] - 1e-9 * total[-1]  # a share that is reached exactly must not miss by rounding
    return np.where(total[-1] > 0, grid.ends[reached.argmax(axis=0)], np.nan)


def _moved(state: State, time_s: float, half_life_s: float) -> State:
    """Move the reference to the last whole half-life before a time, when it is far behind."""
    away = (time_s - float(state.reference_s)) / half_life_s
    if away <= MOST_HALF_LIVES:
        return state
    steps = math.floor(away)
    np.ldexp(state.weights, -min(steps, 10_000), out=state.weights)
    return State(state.weights, np.asarray(state.reference_s + steps * half_life_s))
