"""Level, day and week, decomposed online and robustly, with a remainder that fades.

With z = log(1 + y), d and w the seasons at the phases of the tick, and e = clip(z - (l + d + w), +-c s):

    l' = l + alpha e
    d' = d + delta (1 - alpha) e
    w' = w + omega (1 - delta) (1 - alpha) e
    r = z - (l' + d' + w'),   s' = s + rate (|z - (l + d + w)| - s)
    z^(h) = l' + d' + w' at the phase of t + h + phi^h r

De Livera, Hyndman and Snyder, "Forecasting time series with complex seasonal patterns using exponential smoothing",
JASA 106(496), 2011, with the seasons as states by phase and a first-order remainder. Clipping keeps an outlier out of
level and seasons; s follows the whole error, so that a level shift counts as an outlier for a few ticks only. In its
k-th season a phase learns by 1 / (k + 1) if that is more than its rate: the first day is taken as it is, and a week
only corrects what the days before it have in common.
"""

import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from flyball_models._arrays import Array, Input, arange, as_array, counts, full
from flyball_models._compile import compiled_step


class Config(NamedTuple):
    """A `season` in ticks, `seasons` of which make the long one; rates of level, both seasons and scale.

    `clip` is c, `phi` the share of the remainder that is left a tick later. A forecast is at most a factor `growth`
    away from the last value.
    """

    season: int = 144
    seasons: int = 7
    horizons: int = 12
    alpha: float = 0.02
    delta: float = 0.15
    omega: float = 0.3
    phi: float = 0.97
    clip: float = 4.0
    scale_rate: float = 0.02
    growth: float = 16.0


DEFAULT = Config()


class State(NamedTuple):
    """tick []; seen, last = log(1 + newest value), level, scale, rest [N]; day [season, N] and week [all, N].

    visits [season, N] counts the values of each phase. day_due, visits_due and week_due [N] are the three at the phase
    of `tick`. A missing value leaves everything but the tick and the due values as it was.
    """

    tick: Array
    seen: Array
    last: Array
    level: Array
    scale: Array
    rest: Array
    day: Array
    visits: Array
    week: Array
    day_due: Array
    visits_due: Array
    week_due: Array


def init(n: int, config: Config = DEFAULT) -> State:
    """Return the state of `n` series that have had no value."""
    if config.horizons < 1:
        raise ValueError(f"multi_seasonal: horizons is {config.horizons}; pass 1 or more")
    if config.season < 2 or config.seasons < 2:
        raise ValueError(f"multi_seasonal: {config.seasons} seasons of {config.season} ticks; pass 2 or more of each")
    return State(
        tick=counts(()),
        seen=counts(n),
        last=full(n, 0.0),
        level=full(n, 0.0),
        scale=full(n, 0.0),
        rest=full(n, 0.0),
        day=full((config.season, n), 0.0),
        visits=counts((config.season, n)),
        week=full((config.season * config.seasons, n), 0.0),
        day_due=full(n, 0.0),
        visits_due=counts(n),
        week_due=full(n, 0.0),
    )


def _ahead(state: State, y: Input, mask: Input, config: Config) -> tuple[State, Array]:
    """Update with `y[N]` where `mask[N]`; return log(1 + forecast) [H, N], NaN for a series that never had a value."""
    y = as_array(y)
    ok = mask & jnp.isfinite(y)
    z = jnp.log1p(jnp.maximum(y, 0.0))
    phase, long = state.tick % config.season, state.tick % (config.season * config.seasons)
    day, week, visits = state.day_due, state.week_due, state.visits_due

    level = jnp.where(state.seen == 0, z, state.level)
    off = z - (level + day + week)
    most = jnp.where(state.seen < config.season, jnp.inf, config.clip * state.scale)
    error = jnp.clip(off, -most, most)
    gain = jnp.maximum(config.alpha, 1.0 / (state.seen + 1.0))
    delta = jnp.maximum(config.delta, 1.0 / (visits + 1.0))
    left = (1.0 - gain) * error
    level = level + gain * error
    new_day = day + delta * left
    new_week = week + jnp.where(visits >= config.seasons, config.omega, 0.0) * (1.0 - delta) * left
    rate = jnp.maximum(config.scale_rate, 1.0 / (state.seen + 1.0))

    # Not read before they are written, so that they are updated in place.
    days = state.day.at[phase].set(jnp.where(ok, new_day, day))
    weeks = state.week.at[long].set(jnp.where(ok, new_week, week))
    counted = state.visits.at[phase].set(visits + ok)
    ahead = state.tick + arange(1, config.horizons + 1)
    coming_day, coming_week = days[ahead % config.season], weeks[ahead % (config.season * config.seasons)]
    state = State(
        tick=state.tick + 1,
        seen=state.seen + ok,
        last=jnp.where(ok, z, state.last),
        level=jnp.where(ok, level, state.level),
        scale=jnp.where(ok, state.scale + rate * (jnp.abs(off) - state.scale), state.scale),
        rest=jnp.where(ok, z - (level + new_day + new_week), state.rest),
        day=days,
        visits=counted,
        week=weeks,
        day_due=coming_day[0],
        visits_due=counted[(state.tick + 1) % config.season],
        week_due=coming_week[0],
    )
    fade = as_array(np.power(config.phi, np.arange(1, config.horizons + 1)).astype(np.float32))
    limit = math.log(config.growth)
    change = jnp.clip(state.level + coming_day + coming_week + fade[:, None] * state.rest - state.last, -limit, limit)
    return state, jnp.where(state.seen > 0, jnp.maximum(state.last + change, 0.0), jnp.nan)


ahead = compiled_step(_ahead)
