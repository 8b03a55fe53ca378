"""The last value, and exponential averages of values, held flat over all horizons.

    l' = l + alpha (y - l);   y^(h) = l

With alpha = 1 it is the last value: the baseline of all forecasts. Slow averages are the best forecast of a series that
is noise around a level.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from flyball_models._arrays import Array, Input, as_array, counts, full
from flyball_models._compile import compiled_step


class Config(NamedTuple):
    """Weights of the newest value, one forecast for each; horizons 1..`horizons` ticks ahead."""

    alphas: tuple[float, ...] = (1.0,)
    horizons: int = 12


DEFAULT = Config()


class State(NamedTuple):
    """level [G, N] of each average and series; seen [N], how many values the series has had."""

    level: Array
    seen: Array


def init(n: int, config: Config = DEFAULT) -> State:
    """Return the state of `n` series that have had no value."""
    if config.horizons < 1:
        raise ValueError(f"last: horizons is {config.horizons}; pass 1 or more")
    if not config.alphas or not all(0 < alpha <= 1 for alpha in config.alphas):
        raise ValueError(f"last: alphas are {config.alphas}; pass weights above 0, at most 1")
    return State(full((len(config.alphas), n), 0.0), counts(n))


def _ahead(state: State, y: Input, mask: Input, config: Config) -> tuple[State, Array]:
    """Update with `y[N]` where `mask[N]`; return the forecasts as log(1 + y) [G, 1, N]: one row for all horizons.

    A missing value leaves the forecasts as they were. A series that never had a value is NaN. An average starts as the
    mean of the values so far, until that mean is slower than the average.
    """
    y = as_array(y)
    ok = mask & jnp.isfinite(y)
    alpha = as_array(np.array(config.alphas, np.float32)[:, None])
    rate = jnp.maximum(alpha, 1.0 / (state.seen + 1.0))
    # As a weighted sum, so that alpha = 1 gives back the very value.
    level = (1.0 - rate) * state.level + rate * y
    state = State(jnp.where(ok, level, state.level), state.seen + ok)
    logs = jnp.where(state.seen > 0, jnp.log1p(jnp.maximum(state.level, 0.0)), jnp.nan)
    return state, logs[:, None]


ahead = compiled_step(_ahead)
