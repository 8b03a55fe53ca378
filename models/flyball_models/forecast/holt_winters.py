"""Damped trend and an additive season on the log scale (Holt-Winters).

With z = log(1 + y), s the season at the phase of the tick, and one-step error e = z - (l + phi b + s):

    l' = l + phi b + alpha e
    b' = phi b + alpha beta e
    s' = s + gamma (1 - alpha) e
    z^(h) = l + (phi + phi^2 + ... + phi^h) b + s at the phase of t + h

Winters, "Forecasting sales by exponentially weighted moving averages", Management Science 6(3), 1960; Gardner
and McKenzie 1985 for the damped trend. The first season is only recorded: the model is a damped trend until
one season has passed since the first value, then the season starts as the deviations from its mean. In the
k-th season after, gamma is at least 1 / (k + 1), so that a season of noise is averaged away.
"""

import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from flyball_models._arrays import Array, Input, arange, as_array, counts, full, to_device
from flyball_models._compile import compiled_step


class Config(NamedTuple):
    """Smoothing of level, trend, season, and trend damping; `season` and `horizons` in ticks.

    With `log` the series is smoothed as log(1 + y), and trend and season together may carry a forecast at
    most a factor `growth` away from the value smoothed at the origin.
    """

    alpha: float = 0.3
    beta: float = 0.05
    gamma: float = 0.1
    phi: float = 0.9
    season: int = 144
    horizons: int = 12
    log: bool = True
    growth: float = 16.0


DEFAULT = Config()


class State(NamedTuple):
    """tick []; ring [season, N], NaN where the phase had no value; the rest [N]; due is ring at the phase of `tick`.

    The season at a phase is ring - base once `seasonal`; before, ring holds the values of the first season
    and base their running mean. `since` is the tick of the first value.
    """

    tick: Array
    since: Array
    seen: Array
    level: Array
    trend: Array
    base: Array
    seasonal: Array
    ring: Array
    due: Array


def init(n: int, config: Config = DEFAULT) -> State:
    """Return the state of `n` series that have had no value."""
    if config.horizons < 1:
        raise ValueError(f"holt_winters: horizons is {config.horizons}; pass 1 or more")
    if config.season < 2:
        raise ValueError(f"holt_winters: the season has {config.season} ticks; pass 2 or more")
    return State(
        tick=counts(()),
        since=counts(n),
        seen=counts(n),
        level=full(n, 0.0),
        trend=full(n, 0.0),
        base=full(n, 0.0),
        seasonal=to_device(np.zeros(n, np.bool_)),
        ring=full((config.season, n), jnp.nan),
        due=full(n, jnp.nan),
    )


def _ahead(state: State, y: Input, mask: Input, config: Config) -> tuple[State, Array]:
    """Update with `y[N]` where `mask[N]`; return the forecasts as log(1 + y) [H, N], at least 0.

    A missing value leaves level, trend and season as they were; the phase moves on. A series that never
    had a value is NaN.
    """
    y = as_array(y)
    ok = mask & jnp.isfinite(y)
    z = jnp.log1p(jnp.maximum(y, 0.0)) if config.log else y
    first = state.seen == 0
    since = jnp.where(ok & first, state.tick, state.since)
    age = (state.tick - since) // config.season
    row = state.due
    held = jnp.isfinite(row)

    # The season is taken out of the level at the tick that starts it, so that their sum does not jump.
    starts = ok & ~state.seasonal & (age >= 1) & held
    seasonal = state.seasonal | starts
    offset = jnp.where(held & seasonal, row - state.base, 0.0)
    before = jnp.where(starts, state.level - offset, state.level)

    carried = before + config.phi * state.trend
    error = z - (carried + offset)
    level = jnp.where(first, z, carried + config.alpha * error)
    trend = jnp.where(first, 0.0, config.phi * state.trend + config.alpha * config.beta * error)
    rate = jnp.maximum(config.gamma, 1.0 / (age + 1.0)) * (1.0 - config.alpha)
    # A phase without a value so far takes on all of what the level does not explain.
    fresh = jnp.where(held, row + rate * error, state.base + z - carried)
    row = jnp.where(ok, jnp.where(seasonal, fresh, z), row)
    base = jnp.where(ok & ~seasonal, state.base + (z - state.base) / (state.seen + 1.0), state.base)
    # Not read before it is written, so that it is updated in place.
    ring = state.ring.at[state.tick % config.season].set(row)
    coming = ring[(state.tick + arange(1, config.horizons + 1)) % config.season]

    state = State(
        tick=state.tick + 1,
        since=since,
        seen=state.seen + ok,
        level=jnp.where(ok, level, state.level),
        trend=jnp.where(ok, trend, state.trend),
        base=base,
        seasonal=seasonal,
        ring=ring,
        due=coming[0],
    )
    reach = jnp.cumsum(config.phi ** arange(1, config.horizons + 1))
    season = jnp.where(state.seasonal & jnp.isfinite(coming), coming - state.base, 0.0)
    now = jnp.where(state.seasonal & jnp.isfinite(row), row - state.base, 0.0)
    change = reach[:, None] * state.trend + season - now
    if config.log:
        limit = math.log(config.growth)
        logs = jnp.maximum(state.level + now + jnp.clip(change, -limit, limit), 0.0)
    else:
        logs = jnp.log1p(jnp.maximum(state.level + now + change, 0.0))
    return state, jnp.where(state.seen > 0, logs, jnp.nan)


ahead = compiled_step(_ahead)
