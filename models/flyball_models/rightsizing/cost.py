"""Resource requests of least total cost of over- and under-requesting.

One unit of a requested resource costs 1 per window. If a low request ends a process that needs more (memory), a window
with a peak above it costs `stakes` times the largest use so far; if it only slows the process (CPU, a GPU's compute),
each lacking unit costs `stakes` (then the least cost is at the quantile 1 - 1/stakes, the newsvendor's).

One unobserved peak is added to the histogram: larger than all recent ones by a factor with a Pareto tail, whose index
is measured on the largest quarter. So the margin is wide while data are few or usage varies, and narrow otherwise; a
fixed margin would be too small at first and wasteful later.
"""

from typing import NamedTuple

import numpy as np

from flyball_models.rightsizing.histogram import Floats, Grid, percentile
from flyball_models.rightsizing.usage import Config


class Settings(NamedTuple):
    """`stakes` as above; `unseen` is the weight of unobserved peaks in windows.

    Their tail index is between `least` and `most`.
    """

    stakes: float
    unseen: float = 0.5
    least: float = 0.02
    most: float = 0.3


KILL = Settings(stakes=20.0)
SLOW = Settings(stakes=20.0)
UPPER = 0.75
"""Percentile above which the tail is measured, by Hill's estimator: the mean logarithm of the larger values."""
FADED = 0.25
"""Minimum weight of a sample: the largest sample is the one with this weight above it."""
CPU = Config(Grid(0.01, 1.05, 1_000.0), 2 * 86_400.0)
MEMORY = Config(Grid(1e7, 1.05, 1e12), 4 * 86_400.0, 6 * 3_600.0)


def killing(weights: Floats, grid: Grid, settings: Settings = KILL) -> Floats:
    """Request [S] of least cost if a process is killed above it; weights [B, S] are of peaks; NaN: unknown."""
    share, top = _with_unseen(weights, grid, settings)
    above = np.maximum(1.0 - share.cumsum(axis=0), 0.0)
    cost = grid.ends[:, None] / top + settings.stakes * above
    return _cheapest(cost, weights, grid)


def slowing(weights: Floats, grid: Grid, settings: Settings = SLOW) -> Floats:
    """Request [S] of least cost if a smaller one slows the process; weights [B, S] are of samples; NaN: unknown."""
    share, top = _with_unseen(weights, grid, settings)
    ends = grid.ends[:, None]
    lacking = _beyond(share * ends) - ends * _beyond(share)
    return _cheapest((ends + settings.stakes * lacking) / top, weights, grid)


def _with_unseen(weights: Floats, grid: Grid, settings: Settings) -> tuple[Floats, Floats]:
    """Share of each bucket [B, S] including unobserved peaks, and the largest use that has not faded [S]."""
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


def after_oom(bytes_: Floats) -> Floats:
    """Sample [S] for a process that was killed with `bytes_` [S] in use or requested, by the rule of the VPA."""
    return np.maximum(bytes_ * 1.2, bytes_ + 100 * 2.0**20)
