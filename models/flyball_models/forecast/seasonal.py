"""Seasonal naive: the newest known value of the same phase of the season.

    y^(h) = y[t + h - k season], with the least k >= 1 whose value is known

The ring holds one value per phase, so a gap is bridged by the season before it.
"""

from typing import NamedTuple

import jax.numpy as jnp

from flyball_models._arrays import Array, Input, arange, as_array, counts, full
from flyball_models._compile import compiled_step
from flyball_models._padding import grow
from flyball_models.forecast._scale import in_units


class Config(NamedTuple):
    """Length of the season in ticks (144 is a day of ten-minute ticks); horizons 1..`horizons` ticks ahead."""

    season: int = 144
    horizons: int = 12


DEFAULT = Config()


class State(NamedTuple):
    """tick []; ring [season, N]: log(1 + newest value) of each phase, NaN before the first."""

    tick: Array
    ring: Array


def init(n: int, config: Config = DEFAULT) -> State:
    """Return the state of `n` series that have had no value."""
    if config.horizons < 1:
        raise ValueError(f"seasonal: horizons is {config.horizons}; pass 1 or more")
    if config.season < config.horizons:
        raise ValueError(
            f"seasonal: the season has {config.season} ticks; pass at least the {config.horizons} horizons"
        )
    return State(counts(()), full((config.season, n), jnp.nan))


def resize(state: State, n: int, config: Config = DEFAULT) -> State:
    """Return the state with room for `n` series, its content kept."""
    return grow(state, n, lambda size: init(size, config))


def _ahead(state: State, y: Input, mask: Input, config: Config) -> tuple[State, Array]:
    """As `step`, with the forecasts as log(1 + y) [H, N]."""
    y = as_array(y)
    ok = mask & jnp.isfinite(y)
    phase = state.tick % config.season
    ring = state.ring.at[phase].set(jnp.where(ok, jnp.log1p(jnp.maximum(y, 0.0)), state.ring[phase]))
    logs = ring[(phase + arange(1, config.horizons + 1)) % config.season]
    # Kept below the season, so that a clock that never stops cannot overflow.
    return State((phase + 1) % config.season, ring), logs


ahead = compiled_step(_ahead)


def step(state: State, y: Input, mask: Input, config: Config = DEFAULT) -> tuple[State, Array]:
    """Update with `y[N]` where `mask[N]`; return forecasts[N, H] in the unit of y, at least 0.

    A phase that never had a value is NaN.
    """
    state, logs = ahead(state, y, mask, config=config)
    return state, in_units(logs)
