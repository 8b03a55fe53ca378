"""Seasonal naive: the newest known value of the same phase of the season.

    y^(h) = y[t + h - k season], with the least k >= 1 whose value is known

The ring holds one value per phase, so a gap is bridged by the season before it.
"""

from typing import NamedTuple

import jax.numpy as jnp

from flyball_models._arrays import Array, Input, arange, as_array, counts, full
from flyball_models._compile import compiled_step


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


def _ahead(state: State, y: Input, mask: Input, config: Config) -> tuple[State, Array]:
    """Update with `y[N]` where `mask[N]`; return log(1 + forecast) [H, N], NaN for a phase that never had a value."""
    y = as_array(y)
    ok = mask & jnp.isfinite(y)
    phase = state.tick % config.season
    ring = state.ring.at[phase].set(jnp.where(ok, jnp.log1p(jnp.maximum(y, 0.0)), state.ring[phase]))
    logs = ring[(phase + arange(1, config.horizons + 1)) % config.season]
    # Kept below the season, so that a clock that never stops cannot overflow.
    return State((phase + 1) % config.season, ring), logs


ahead = compiled_step(_ahead)
