"""Start from a recording: statsmodels' offline fit becomes the initial state of the online model.

A smoothing of a new series needs several seasons to estimate its own; a long history gives them at once. Level, trend
and season after the history are those of statsmodels' exponential smoothing (with a season) or of its state-space form
(without one, initial state estimated with it), at the rates of the online model. Weights, profiles and shared state are
estimated online only: the history is replayed first, then the smoothings are fitted.

statsmodels is imported only for a start from history.
"""

import importlib
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flyball_models._arrays import Array, as_array, counts
from flyball_models.forecast import damped, ensemble, holt_winters

Floats = NDArray[np.float32]
_LEAST = 8
"""Minimum number of values; a series with fewer starts as a new one."""


def filled(y: Floats) -> NDArray[np.float64]:
    """Return log(1 + y) of y [T] with its gaps (NaN) interpolated linearly, for fits without gaps."""
    known = np.isfinite(y)
    ticks = np.arange(len(y))
    return np.interp(ticks, ticks[known], np.log1p(np.maximum(y[known].astype(np.float64), 0.0)))


def damped_state(y: Floats, n: int, config: damped.Config = damped.DEFAULT) -> damped.State:
    """Return the state of `n` series, of which the first S have had y [T, S], NaN where missing; `log` is set."""
    made: Any = importlib.import_module("statsmodels.tsa.statespace.exponential_smoothing")
    state = [np.array(leaf) for leaf in damped.init(n, config)]
    for s in _long(y):
        model = made.ExponentialSmoothing(
            filled(y[:, s]), trend=True, damped_trend=True, initialization_method="concentrated"
        )
        # statsmodels has its own rate for the trend: our gain, alpha beta, as both errors are one-step errors.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = model.smooth([config.alpha, config.alpha * config.beta, config.phi])
        names = list(model.state_names)
        final = found.filtered_state[:, -1]
        state[0][s], state[1][s] = final[names.index("level")], final[names.index("trend")]
        state[2][s] = int(np.isfinite(y[:, s]).sum())
    return damped.State(*(as_array(leaf) for leaf in state))


def holt_winters_state(y: Floats, n: int, config: holt_winters.Config = holt_winters.DEFAULT) -> holt_winters.State:
    """Return the state of `n` series, of which the first S have had y [T, S], NaN where missing; `log` is set.

    Series with less than two seasons start as new ones.
    """
    made: Any = importlib.import_module("statsmodels.tsa.holtwinters")
    fresh = holt_winters.init(n, config)
    level, trend, ring, seen = (np.array(leaf) for leaf in (fresh.level, fresh.trend, fresh.ring, fresh.seen))
    seasonal, since, ticks = np.array(fresh.seasonal), np.array(fresh.since), len(y)
    for s in _long(y) if ticks >= 2 * config.season else ():
        model = made.ExponentialSmoothing(
            filled(y[:, s]),
            trend="add",
            damped_trend=True,
            seasonal="add",
            seasonal_periods=config.season,
            initialization_method="heuristic",
        )
        found = model.fit(
            smoothing_level=config.alpha,
            smoothing_trend=config.beta,
            smoothing_seasonal=config.gamma * (1 - config.alpha),
            damping_trend=config.phi,
            optimized=False,
        )
        level[s], trend[s] = found.level[-1], found.trend[-1]
        last = np.arange(ticks - config.season, ticks)
        ring[last % config.season, s] = found.season[last]
        seen[s], seasonal[s] = int(np.isfinite(y[:, s]).sum()), True
        since[s] = int(np.flatnonzero(np.isfinite(y[:, s]))[0])
    return fresh._replace(
        tick=counts(()) + ticks,
        since=as_array(since),
        seen=as_array(seen),
        level=as_array(level),
        trend=as_array(trend),
        seasonal=as_array(seasonal),
        ring=as_array(ring),
        due=as_array(ring[ticks % config.season]),
    )


def fitted_damped(y: Floats, state: damped.State, config: damped.Config) -> damped.State:
    """Return the state after y [T, S] in the first slots, NaN where missing, with level and trend fitted."""
    found: damped.State = _where(y, damped_state(y, state.level.shape[-1], config), state)
    return found


def fitted(y: Floats, state: ensemble.State, config: ensemble.Config) -> ensemble.State:
    """Return the state after y [T, S] in the first slots, NaN where missing, with the smoothings fitted."""
    members = list(state.members)
    for i, member in enumerate(config.members):
        if member.model is holt_winters and len(y) >= 2 * member.config.season:
            found = holt_winters_state(y, members[i].level.shape[-1], member.config)
            members[i] = _where(y, found, members[i])
        elif member.model is damped:
            members[i] = fitted_damped(y, members[i], member.config)
    return state._replace(members=tuple(members))


def _long(y: Floats) -> Sequence[int]:
    """Return the series with enough different values to fit."""
    known = np.isfinite(y)
    moves = np.where(known, y, -np.inf).max(axis=0) > np.where(known, y, np.inf).min(axis=0)
    return np.flatnonzero((known.sum(axis=0) >= _LEAST) & moves).tolist()


def _where(y: Floats, fitted: Any, played: Any) -> Any:
    """Return the fitted state for the series that were fitted, the played one for the others."""
    chosen = np.zeros(played.level.shape[-1], np.bool_)
    chosen[_long(y)] = True
    pairs = zip(fitted, played, strict=True)
    leaves: list[Array] = [
        new if new.ndim == 0 else as_array(np.asarray(np.where(chosen, new, old)))  # pyright: ignore[reportUnknownArgumentType]
        for new, old in pairs
    ]
    return type(played)(*leaves)
