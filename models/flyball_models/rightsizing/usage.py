"""Usage of each series in a decaying histogram: each sample, or the peak of each window.

Resources that can be shared in time (CPU, a GPU's compute) are stored by samples; memory by the peaks of windows,
because one moment above the limit ends the process.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flyball_models.rightsizing import histogram
from flyball_models.rightsizing.histogram import Floats, Grid


class Config(NamedTuple):
    """Buckets, half-life, and the window whose peak is one sample; 0: every sample counts."""

    grid: Grid
    half_life_s: float = 86_400.0
    window_s: float = 0.0


class State(NamedTuple):
    """Histogram, and by series [N] the open window's peak (NaN: none) and number, and the time of the first sample."""

    past: histogram.State
    peak: Floats
    window: NDArray[np.int64]
    since_s: Floats


def init(n: int, config: Config) -> State:
    """Return the state of `n` series without samples."""
    unknown = np.full(n, np.nan)
    return State(histogram.init(n, config.grid), unknown, np.zeros(n, np.int64), unknown.copy())


def step(state: State, x: Floats, mask: NDArray[np.bool_], time_s: float, config: Config) -> State:
    """Add the samples `x` [N] of one time where `mask` [N]; the state passed in must not be used again.

    Negative or non-finite values are ignored.
    """
    series = np.flatnonzero(mask & np.isfinite(x) & (x >= 0))
    new = series[np.isnan(state.since_s[series])]
    state.since_s[new] = time_s
    if not config.window_s:
        return state._replace(past=_add(state.past, x[series], series, time_s, config))
    window = int(time_s // config.window_s)
    over = series[(state.window[series] != window) & np.isfinite(state.peak[series])]
    ends = (state.window[over] + 1) * config.window_s
    past = state.past
    for end in np.unique(ends).tolist():  # nearly always one: all series have the same windows
        done = over[ends == end]
        past = _add(past, state.peak[done], done, end, config)
    state.peak[over] = np.nan
    state.peak[series] = np.fmax(state.peak[series], x[series])
    state.window[series] = window
    return state._replace(past=past)


def weights(state: State, series: NDArray[np.int64], time_s: float, config: Config) -> Floats:
    """Weights of some series [S] at a time, float64 [B, S], the open window's peak included."""
    found = histogram.weights_at(state.past, series, time_s, config.half_life_s)
    peak = state.peak[series]
    known = np.flatnonzero(np.isfinite(peak))
    found[config.grid.find(peak[known]), known] += 1.0
    return found


def _add(past: histogram.State, x: Floats, series: NDArray[np.int64], time_s: float, c: Config) -> histogram.State:
    return histogram.add(past, x, 1.0, series, time_s, c.grid, c.half_life_s)
