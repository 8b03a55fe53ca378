"""The shape of earlier days, moved to where the series is now.

With z = log(1 + y), for each group of days D, the profile of a tick and its running distance to the series:

    p(t) = mean over d in D of the mean of z[t - d season + i], i = -1, 0, 1
    v' = v + rate (z - p(t) - v);   z^(h) = p(t + h) + v

One day is yesterday, seven days alone the same day of last week, one to seven their mean: a multi-seasonal
decomposition without a fit. Unknown values are left out of the means; without any there is no forecast.

Shapes: N series, H horizons, G groups, R ticks of ring. The series axis is the last one.
"""

import math
from typing import NamedTuple

import jax.numpy as jnp

from flyball_models._arrays import Array, Input, arange, as_array, counts, full, mean_of_known
from flyball_models._compile import compiled_step

_SIDES = (-1, 0, 1)


class Config(NamedTuple):
    """`season` in ticks; `groups` of days, one forecast each; `rate` of the distance; horizons 1..`horizons`.

    A forecast is at most a factor `growth` away from the last value.
    """

    season: int = 144
    groups: tuple[tuple[int, ...], ...] = ((1,), (7,), (1, 2, 3, 4, 5, 6, 7))
    rate: float = 0.4
    horizons: int = 12
    growth: float = 16.0

    @property
    def length(self) -> int:
        """Ticks in the ring: the oldest day, and a tick on its far side."""
        return self.season * max(max(days) for days in self.groups) + 2


DEFAULT = Config()


class State(NamedTuple):
    """tick []; ring [R, N] = log(1 + y) by tick, NaN: none; ahead [H + 1, G, N]: the profile by target tick.

    last [N] = log(1 + newest value); seen [N]; distance [G, N], NaN before the first. A missing value leaves
    last, seen and distance as they were.
    """

    tick: Array
    ring: Array
    ahead: Array
    last: Array
    seen: Array
    distance: Array


def init(n: int, config: Config = DEFAULT) -> State:
    """Return the state of `n` series that have had no value."""
    if config.horizons < 1:
        raise ValueError(f"profile: horizons is {config.horizons}; pass 1 or more")
    if config.season <= config.horizons + 1:
        raise ValueError(f"profile: the season has {config.season} ticks; pass more than {config.horizons + 1}")
    if not config.groups or any(not days or min(days) < 1 for days in config.groups):
        raise ValueError(f"profile: groups are {config.groups}; pass at least one, of days from 1")
    groups = len(config.groups)
    return State(
        tick=counts(()),
        ring=full((config.length, n), jnp.nan),
        ahead=full((config.horizons + 1, groups, n), jnp.nan),
        last=full(n, 0.0),
        seen=counts(n),
        distance=full((groups, n), jnp.nan),
    )


def _ahead(state: State, y: Input, mask: Input, config: Config) -> tuple[State, Array]:
    """Update with `y[N]` where `mask[N]`; return log(1 + forecast) [G, H, N], NaN without a known value at a phase."""
    y = as_array(y)
    ok = mask & jnp.isfinite(y)
    z = jnp.log1p(jnp.maximum(y, 0.0))
    # Written before it is read, so that the ring is updated in place.
    ring = state.ring.at[state.tick % config.length].set(jnp.where(ok, z, jnp.nan))
    h, kept = config.horizons, config.horizons + 1

    # Each tick adds the profile of the one tick that has come into reach; the others are there already.
    days = sorted({day for group in config.groups for day in group})
    shape = {
        day: mean_of_known([ring[(state.tick - (config.season * day - h + side)) % config.length] for side in _SIDES])
        for day in days
    }
    new = jnp.stack([mean_of_known([shape[day] for day in group]) for group in config.groups])
    coming = state.ahead.at[(state.tick + h) % kept].set(new)

    off = z - coming[state.tick % kept]
    first = ~jnp.isfinite(state.distance)
    distance = jnp.where(first, off, state.distance + config.rate * (off - state.distance))
    distance = jnp.where(ok & jnp.isfinite(off), distance, state.distance)
    last = jnp.where(ok, z, state.last)

    limit = math.log(config.growth)
    change = coming[(state.tick + arange(1, kept)) % kept] + distance - last
    logs = jnp.maximum(last + jnp.clip(change, -limit, limit), 0.0)
    known = jnp.isfinite(change)  # computed first, since minimum and maximum need not propagate NaN
    state = State(state.tick + 1, ring, coming, last, state.seen + ok, distance)
    return state, jnp.where(known, logs, jnp.nan).transpose(1, 0, 2)


ahead = compiled_step(_ahead)
