"""Damped-trend exponential smoothing on the log scale.

With z = log(1 + y), one-step error e = z - (l + phi b), and additive damped trend:

    l' = l + phi b + alpha e
    b' = phi b + alpha beta e
    z^(h) = l + (phi + phi^2 + ... + phi^h) b

Gardner and McKenzie, "Forecasting trends in time series", Management Science 31(10), 1985; error-correction
form. The first value of a series is its first level. A missing value is skipped: time does not pass for
that series.
"""

import math
from typing import NamedTuple

import jax.numpy as jnp

from flyball_models._arrays import Array, Input, arange, as_array, counts, full
from flyball_models._compile import compiled_step


class Config(NamedTuple):
    """Smoothing of level, trend and trend damping; horizons 1..`horizons` ticks ahead.

    With `log` the series is smoothed as log(1 + y), and the trend may carry a forecast at most a factor
    `growth` away from the level.
    """

    alpha: float = 0.3
    beta: float = 0.1
    phi: float = 0.9
    horizons: int = 12
    log: bool = True
    growth: float = 16.0


DEFAULT = Config()


class State(NamedTuple):
    """Level and trend of each series, and how many values it has had; all [N]."""

    level: Array
    trend: Array
    seen: Array


def init(n: int, config: Config = DEFAULT) -> State:
    """Return the state of `n` series that have had no value."""
    if config.horizons < 1:
        raise ValueError(f"damped: horizons is {config.horizons}; pass 1 or more")
    return State(full(n, 0.0), full(n, 0.0), counts(n))


def _ahead(state: State, y: Input, mask: Input, config: Config) -> tuple[State, Array]:
    """Update with `y[N]` where `mask[N]`; return the forecasts as log(1 + y) [H, N], at least 0.

    Values below 0 count as 0 on the log scale. A series that never had a value is NaN.
    """
    y = as_array(y)
    ok = mask & jnp.isfinite(y)
    z = jnp.log1p(jnp.maximum(y, 0.0)) if config.log else y
    first = state.seen == 0
    predicted = state.level + config.phi * state.trend
    error = z - predicted
    level = jnp.where(first, z, predicted + config.alpha * error)
    trend = jnp.where(first, 0.0, config.phi * state.trend + config.alpha * config.beta * error)
    state = State(
        jnp.where(ok, level, state.level),
        jnp.where(ok, trend, state.trend),
        state.seen + ok,
    )
    reach = jnp.cumsum(config.phi ** arange(1, config.horizons + 1))
    change = reach[:, None] * state.trend
    if config.log:
        limit = math.log(config.growth)
        logs = jnp.maximum(state.level + jnp.clip(change, -limit, limit), 0.0)
    else:
        logs = jnp.log1p(jnp.maximum(state.level + change, 0.0))
    return state, jnp.where(state.seen > 0, logs, jnp.nan)


ahead = compiled_step(_ahead)
