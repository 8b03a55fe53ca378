"""A lower estimate of capacity: a high quantile of the work that a replica has served in time.

The quantile of the logarithm is tracked by stochastic steps (Robbins and Monro 1951): one number of state, slow
forgetting, and little influence of outliers. If load was never high, it lies below capacity by an unknown amount, so it
counts only once it has been compared with a saturated window.
"""

from typing import NamedTuple

import numpy as np

from flyball_models.capacity.base import Bools, Floats, Limits, Point, empty, is_late

LEVEL = 0.98
STEP = 0.05


class State(NamedTuple):
    """The quantile's logarithm, [N]."""

    quantile: Floats


def init(n: int) -> State:
    """Return the state of `n` workloads without history."""
    return State(empty(n))


def step(state: State, point: Point, limits: Limits, full: Bools) -> tuple[State, Floats]:
    """Update with a window; return the quantile [N], NaN if unknown. Saturated windows, `full`, count as well."""
    with np.errstate(invalid="ignore", divide="ignore"):
        late = is_late(point, limits)
        seen = np.log(np.where((point.served > 0) & (full | ~late), point.served, np.nan))
        moved = state.quantile + STEP * (LEVEL - (seen < state.quantile))
        first = np.isnan(state.quantile)
        quantile = np.where(np.isnan(seen), state.quantile, np.where(first, seen, moved))
        return State(quantile), np.exp(quantile)
