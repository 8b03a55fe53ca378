"""One linear model for all series, estimated online; it also forecasts new series.

With z = log(1 + y), s a running mean of |z[t] - z[t-1]| and u = s sqrt(h), per judged horizon h:

    x = clip((log(1 + y^_k) - z[t]) / u, ...), (z[t-1], z[t-2], z[t-5] - z[t]) / u, 1, calendar
    z^[t+h] = z[t] + u w.x
    A' = f A + sum v x x',  b' = f b + sum v x r,  w = (A' + ridge I)^-1 b'

The y^_k are forecasts of other models (averages of several rates, the profiles of earlier days): normalised
lags that each series already keeps. Target r = clip((z[t+h] - z[t]) / u); v = min(1, d / |r - w.x|) makes it a
regression on the median, since loads are skewed (iteratively reweighted least squares; Huber and Ronchetti, "Robust
Statistics", 2009). One set of weights for thousands of series has more data than any of them, and no series is
too young for it: Montero-Manso and Hyndman, "Principles and algorithms for forecasting groups of time series:
locality and globality", International Journal of Forecasting 37(4), 2021.

The sums are of whole numbers (`_pool`), so that neither slot nor padding changes a bit.

Shapes: N series, F features of which U are forecasts, J judged horizons, R = judged[-1] + 1 origins.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import jax.numpy as jnp
import numpy as np
from jax import lax

from flyball_models._arrays import Array, Input, as_array, constant, counts, full
from flyball_models._compile import compiled_step
from flyball_models._pool import products_over_series
from flyball_models.forecast._scale import ahead_of, between, experts_of

_LAGS = (1, 2, 5)
_KEPT = max(_LAGS) + 1
_HARMONICS = (1, 2)
_LEAST_SCALE = 1e-3
"""A change of 0.1 %: below it a series counts as constant."""
_CLIP = 5.0


class Config(NamedTuple):
    """`uses` are the given forecasts that are used as features; `season` in ticks has a calendar, 0 has none.

    `forgetting` per tick, `ridge` in pairs of series and tick, `median` is d above. A forecast is at most a factor
    `growth` away from the last value.
    """

    uses: tuple[int, ...] = (0,)
    season: int = 0
    judged: tuple[int, ...] = (1, 6, 12)
    horizons: int = 12
    forgetting: float = 0.995
    ridge: float = 10.0
    median: float = 0.3
    scale_rate: float = 0.01
    growth: float = 16.0

    @property
    def own(self) -> int:
        """Features that differ between series: forecasts and lags."""
        return len(self.uses) + len(_LAGS)

    @property
    def features(self) -> int:
        """All features: the series' own, a constant, and the calendar's."""
        return self.own + 1 + (2 * len(_HARMONICS) if self.season else 0)


DEFAULT = Config()


class State(NamedTuple):
    """Shared parameters, and values of each series, by tick modulo the length (NaN: none).

    tick []; gram [J, F, F, 1], moment, common [J, F, 1], the weights w; recent [_KEPT, N] = log(1 + newest value);
    scale, seen [N]; base [R, N] = log(1 + y) by origin, units [R, N], made [R, own, J, N]: the open forecasts'.
    """

    tick: Array
    gram: Array
    moment: Array
    common: Array
    recent: Array
    scale: Array
    seen: Array
    base: Array
    units: Array
    made: Array


def init(n: int, config: Config = DEFAULT) -> State:
    """Return the state of `n` series that have had no value: the weights are those of the last value."""
    judged, f = config.judged, config.features
    if not judged or list(judged) != sorted(set(judged)) or judged[0] < 1:
        raise ValueError(f"pooled: judged horizons are {judged}; pass ascending ones from 1")
    if config.horizons < 1:
        raise ValueError(f"pooled: horizons is {config.horizons}; pass 1 or more")
    if not 0 < config.forgetting <= 1:
        raise ValueError(f"pooled: forgetting is {config.forgetting}; pass a share above 0, at most 1")
    j, origins = len(judged), judged[-1] + 1
    return State(
        tick=counts(()),
        gram=full((j, f, f, 1), 0.0),
        moment=full((j, f, 1), 0.0),
        common=full((j, f, 1), 0.0),
        recent=full((_KEPT, n), jnp.nan),
        scale=full(n, 0.0),
        seen=counts(n),
        base=full((origins, n), jnp.nan),
        units=full((origins, n), 1.0),
        made=full((origins, config.own, j, n), 0.0),
    )


def _calendar(tick: Array, horizon: int, config: Config) -> Array:
    """Return the map [F, own + 1] from the series' own features, and 1, to all features of a forecast at `tick`."""
    rows: list[Array] = []
    for k in _HARMONICS if config.season else ():
        turn = 2 * math.pi * k / config.season
        now, then = turn * (tick % config.season), turn * ((tick + horizon) % config.season)
        rows += [jnp.sin(then) - jnp.sin(now), jnp.cos(then) - jnp.cos(now)]
    eye = as_array(np.eye(config.own + 1, dtype=np.float32))
    return jnp.concatenate([eye, *(eye[-1:] * value for value in rows)])


def _dot(weights: Array, own: Array) -> Array:
    """Return the sum over the features own [F', N] and 1, one by one, in an order that no padding changes."""
    total = weights[-1] + weights[0] * own[0]
    for f in range(1, own.shape[0]):
        total = total + weights[f] * own[f]
    return total


def _update(state: State, z: Array, ok: Array, config: Config) -> tuple[Array, Array]:
    """Return the sums after the forecasts for this tick are resolved by `z[N]`."""
    gram: list[Array] = []
    moment: list[Array] = []
    for j, h in enumerate(config.judged):
        slot = (state.tick - h) % (config.judged[-1] + 1)
        unit = state.units[slot] * math.sqrt(h)
        target = (z - state.base[slot]) / unit
        known = ok & jnp.isfinite(target)
        target = jnp.clip(jnp.where(known, target, 0.0), -_CLIP, _CLIP)
        own, spread = state.made[slot, :, j], _calendar(state.tick - h, h, config)
        off = jnp.abs(target - _dot(state.common[j, :, 0] @ spread, own))
        worth = jnp.where(known, config.median / jnp.maximum(off, config.median), 0.0)
        rows = jnp.concatenate([own, constant((1, *z.shape), 1.0), target[None]])
        sums = products_over_series(jnp.sqrt(worth) * rows)
        gram.append(spread @ sums[:-1, :-1] @ spread.T)
        moment.append(spread @ sums[:-1, -1])
    forget = config.forgetting
    return forget * state.gram + jnp.stack(gram)[..., None], forget * state.moment + jnp.stack(moment)[..., None]


def _observe(state: State, y: Input, mask: Input, parts: Sequence[Array], config: Config) -> State:
    """Add `y[N]` where `mask[N]`, and the features of the forecasts."""
    y = as_array(y)
    ok = jnp.isfinite(y) & mask
    z = jnp.log1p(jnp.maximum(y, 0.0))
    last = state.recent[(state.tick - 1) % _KEPT]
    moved = ok & jnp.isfinite(last)
    rate = jnp.maximum(config.scale_rate, 1.0 / jnp.maximum(state.seen, 1))
    scale = jnp.where(moved, state.scale + rate * (jnp.abs(z - last) - state.scale), state.scale)
    last = jnp.where(ok, z, last)
    recent = state.recent.at[state.tick % _KEPT].set(last)
    unit = jnp.maximum(scale, _LEAST_SCALE)

    lags = [recent[(state.tick - lag) % _KEPT] - last for lag in _LAGS]
    made: list[Array] = []
    experts = experts_of(parts)
    for h in config.judged:
        near = [ahead_of(experts[k], h) - last for k in config.uses]
        x = jnp.stack([*near, *lags]) / (unit * math.sqrt(h))
        made.append(jnp.clip(jnp.where(jnp.isfinite(x), x, 0.0), -_CLIP, _CLIP))
    slot = state.tick % (config.judged[-1] + 1)
    # Written before they are read, and with one place more than open forecasts, so that they are updated in place.
    state = state._replace(
        recent=recent,
        scale=scale,
        seen=state.seen + ok,
        base=state.base.at[slot].set(jnp.where(ok, z, jnp.nan)),
        units=state.units.at[slot].set(unit),
        made=state.made.at[slot].set(jnp.stack(made, axis=1)),
    )
    gram, moment = _update(state, z, ok, config)
    return state._replace(tick=state.tick + 1, gram=gram, moment=moment)


def _solve(gram: Array, moment: Array, config: Config) -> Array:
    """Return the weights [J, F, 1]; 0 where there is no solution."""
    f, gram = gram.shape[1], gram[..., 0]
    eye = np.eye(f, dtype=np.float32)
    # Forecasts that are nearly alike: a little of the mean diagonal keeps the solution within float32.
    size = jnp.trace(gram, axis1=1, axis2=2)[:, None, None]
    damped = gram + (config.ridge + 1e-4 / f * size) * eye

    def eliminate(i: Array, rows: Array) -> Array:
        # Of symmetric positive definite matrices the pivots are those of the diagonal.
        pivot = rows[:, i] / rows[:, i, i, None]
        return (rows - rows[:, :, i, None] * pivot[:, None]).at[:, i].set(pivot)

    rows = jnp.concatenate([damped, moment], axis=2)
    weights = cast("Array", cast("Any", lax).fori_loop(0, f, eliminate, rows))[:, :, f:]  # only partly typed
    return jnp.where(jnp.isfinite(weights), weights, 0.0)


def _predict(state: State, config: Config) -> Array:
    """Return the forecasts as log(1 + y) [H, N]."""
    now = state.tick - 1
    slot = now % (config.judged[-1] + 1)
    last = state.recent[now % _KEPT]
    limit = math.log(config.growth)
    change: list[Array] = []
    for j, h in enumerate(config.judged):
        weights = state.common[j, :, 0] @ _calendar(now, h, config)
        step = jnp.clip(_dot(weights, state.made[slot, :, j]), -_CLIP, _CLIP) * state.units[slot] * math.sqrt(h)
        change.append(jnp.clip(step, -limit, limit))
    logs = jnp.maximum(last + between(change, config.judged, config.horizons), 0.0)
    return jnp.where(jnp.isfinite(last), logs, jnp.nan)


observed = compiled_step(_observe)
_solved = compiled_step(_solve, donate=False)
_predicted = compiled_step(_predict, donate=False)


def ahead(state: State, y: Input, mask: Input, parts: Sequence[Array], config: Config) -> tuple[State, Array]:
    """Update with `y[N]` where `mask[N]`; return the forecasts as log(1 + y) [H, N], at least 0.

    `parts` are the forecasts of the other models at this tick, as they come from `ahead`: log(1 + y) [H, N], or
    [G, H, N] of G experts, NaN where one has none; the judged horizons lie within H. A series that never had a value
    is NaN.
    """
    state = observed(state, y, mask, parts, config=config)
    state = state._replace(common=_solved(state.gram, state.moment, config=config))
    return state, _predicted(state, config=config)
