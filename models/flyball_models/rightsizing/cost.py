"""What to ask for so that too much and too little cost least together.

One unit of a resource that is asked for costs 1 a window. Where a request ends a process that needs more (memory), a
window whose peak is above it costs `stakes` times what the largest use so far would cost; where it only slows it down
(CPU, a GPU's compute), each unit that is lacking costs `stakes` (then the least cost is at the quantile 1 - 1/stakes,
the newsvendor's). To the peaks of the histogram comes one that was not seen yet: larger than all recent ones by a
factor with a Pareto tail, whose index is measured on the largest quarter. So the margin is wide while little is known
or usage varies, and narrow when neither is so, where a fixed one is too small first and wasteful for ever after.
"""

from typing import NamedTuple

import numpy as np

from flyball_models.rightsizing.histogram import Floats, Grid, percentile
from flyball_models.rightsizing.usage import Config


class Settings(NamedTuple):
    """`stakes` as above; `unseen` windows' worth of unseen peaks; their tail's index is between `least` and `most`."""

    stakes: float
    unseen: float = 0.5
    least: float = 0.02
    most: float = 0.3


KILL = Settings(stakes=20.0)
SLOW = Settings(stakes=20.0)
UPPER = 0.75
"""Percentile above which the tail is measured, by Hill's estimator: the mean logarithm of what is above it."""
FADED = 0.25
"""Samples whose weight is less have faded: the largest is the one above which there is not so much."""
CPU = Config(Grid(0.01, 1.05, 1_000.0), 2 * 86_400.0)
MEMORY = Config(Grid(1e7, 1.05, 1e12), 4 * 86_400.0, 6 * 3_600.0)


def killing(weights: Floats, grid: Grid, settings: Settings = KILL) -> Floats:
    """Request [S] of least cost where the weights [B, S] are of peaks above which a process is killed; NaN: unknown."""
    share, top = _with_unseen(weights, grid, settings)
    above = np.maximum(1.0 - share.cumsum(axis=0), 0.0)
    cost = grid.ends[:, None] / top + settings.stakes * above
    return _cheapest(cost, weights, grid)


def slowing(weights: Floats, grid: Grid, settings: Settings = SLOW) -> Floats:
    """Request [S] of least cost where the weights [B, S] are of samples that a smaller request slows; NaN: unknown."""
    share, top = _with_unseen(weights, grid, settings)
    ends = grid.ends[:, None]
    lacking = _beyond(share * ends) - ends * _beyond(share)
    return _cheapest((ends + settings.stakes * lacking) / top, weights, grid)


def _with_unseen(weights: Floats, grid: Grid, settings: Settings) -> tuple[Floats, Floats]:
    """Share of each bucket [B, S] with what is unseen, and the largest use that has not faded [S]."""
    ends, total = grid.ends, np.maximum(weights.sum(axis=0), 1e-300)
    seen = weights[::-1].cumsum(axis=0)[::-1] >= np.minimum(FADED, 0.5 * total)
    last = len(ends) - 1 - seen[::-1].argmax(axis=0)
    top = ends[last]
    logs = np.log(ends)[:, None]
    level = np.log(percentile(weights, UPPER, grid))
    above = np.where(logs >= level, weights, 0.0)
    excess = (above * (logs - level)).sum(axis=0) / np.maximum(above.sum(axis=0), 1e-300)
    tail = np.clip(excess, settings.least, settings.most)
    beyond = np.minimum(1.0, np.exp(-(logs - np.log(top)) / tail))  # survival of the unseen peak
    density = -np.diff(beyond, axis=0, prepend=1.0)
    return (weights + settings.unseen * density) / (total + settings.unseen), top


def _beyond(x: Floats) -> Floats:
    """Sum over the buckets after each one, [B, S]."""
    total = x[::-1].cumsum(axis=0)[::-1]
    return total - x


def _cheapest(cost: Floats, weights: Floats, grid: Grid) -> Floats:
    return np.where(weights.sum(axis=0) > 0, grid.ends[cost.argmin(axis=0)], np.nan)
