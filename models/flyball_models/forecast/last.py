"""The last value, or a short exponential average of values, held flat over all horizons.

    l' = l + alpha (y - l);   y^(h) = l

With alpha = 1 it is the last value: the forecast that any other has to beat.
"""

from typing import NamedTuple

import jax.numpy as jnp

from flyball_models._arrays import Array, Input, as_array, counts, full
from flyball_models._compile import compiled_step
from flyball_models._padding import grow


class Config(NamedTuple):
    """Weight of the newest value; horizons 1..`horizons` ticks ahead."""

    alpha: float = 1.0
    horizons: int = 12


DEFAULT = Config()


class State(NamedTuple):
    """Level of each series, and how many values it has had; both [N]."""

    level: Array
    seen: Array


def init(n: int, config: Config = DEFAULT) -> State:
    """Return the state of `n` series that have had no value."""
    if config.horizons < 1:
        raise ValueError(f"last: horizons is {config.horizons}; pass 1 or more")
    if not 0 < config.alpha <= 1:
        raise ValueError(f"last: alpha is {config.alpha}; pass a weight above 0, at most 1")
    return State(full(n, 0.0), counts(n))


def resize(state: State, n: int, config: Config = DEFAULT) -> State:
    """Return the state with room for `n` series, its content kept."""
    return grow(state, n, lambda size: init(size, config))


def _step(state: State, y: Input, mask: Input, config: Config = DEFAULT) -> tuple[State, Array]:
    """Learn `y[N]` where `mask[N]`; return forecasts[N, H] in the unit of y, at least 0.

    A missing value leaves the forecast as it was. A series that never had a value is NaN.
    """
    y = as_array(y)
    ok = mask & jnp.isfinite(y)
    rate = jnp.where(state.seen == 0, 1.0, config.alpha)
    # As a weighted sum, so that alpha = 1 gives back the very value.
    level = (1.0 - rate) * state.level + rate * y
    state = State(jnp.where(ok, level, state.level), state.seen + ok)
    forecast = jnp.where(state.seen > 0, jnp.maximum(state.level, 0.0), jnp.nan)
    return state, jnp.broadcast_to(forecast[:, None], (*y.shape, config.horizons))


step = compiled_step(_step)
