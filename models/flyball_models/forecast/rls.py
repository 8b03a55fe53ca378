"""Direct dynamic regression on recent and seasonal changes, by recursive least squares with forgetting.

With z = log(1 + y), s a running mean of |z[t] - z[t-1]|, and features x that are differences from z[t] in
units of s, one regression per judged horizon h:

    z^[t+h] = z[t] + s w.x                  e = clip((z[t] - z[t-h]) / s - w.x)
    k = P x / (lambda + x' P x)             w += k e,   P = (P - k x' P) / lambda

Ljung and Soderstrom, "Theory and Practice of Recursive Identification", MIT Press 1983. Features and target are
differences, so a level shift is no error of the model, and a lag without a value is a difference of 0. Weights start at
0, which forecasts the last value. Guards: clipped error and features, no forgetting while the trace of P is above its
cap (a quiet series must not wind P up), P is reset where it lost its positive diagonal, and a bounded change. Horizons
between the judged ones are interpolated on the log scale.

Shapes: N series, F features, J judged horizons, R ticks of ring. The series axis is the last one.
"""

import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from flyball_models._arrays import Array, Input, as_array, constant, counts, full, mean_of_known, to_device
from flyball_models._compile import compiled, compiled_step
from flyball_models.forecast._scale import between

_RECENT = (1, 2, 5)
_SHORT = 6
_FEATURES = 11
_LEAST_SCALE = 1e-3
"""A change of 0.1 %: below it a series counts as constant."""
_FEATURE_CLIP = 10.0


class Config(NamedTuple):
    """Regressions at the horizons `judged`, ascending; `season` in ticks, of which `seasons` are remembered.

    `prior` is the diagonal of P at the start, `trace` its cap per feature, `clip` the largest error learned
    from in units of the running scale. A forecast is at most a factor `growth` away from the last value.
    """

    season: int = 144
    seasons: int = 7
    judged: tuple[int, ...] = (1, 6, 12)
    horizons: int = 12
    forgetting: float = 0.999
    prior: float = 0.01
    clip: float = 3.0
    trace: float = 10.0
    scale_rate: float = 0.01
    growth: float = 16.0

    @property
    def length(self) -> int:
        """Ticks in the ring: all seasons, the furthest origin still open, and its lags."""
        return self.season * self.seasons + self.judged[-1] + _SHORT + 2


DEFAULT = Config()


class State(NamedTuple):
    """Fitted parameters, and the values by tick modulo R (NaN: none).

    tick []; ring [R, N] = log(1 + y); last [N] = log(1 + newest value); scale, seen [N]; weights [F, J, N];
    covariance [F, F, J, N]. A missing value leaves everything but the ring as it was.
    """

    tick: Array
    ring: Array
    last: Array
    scale: Array
    seen: Array
    weights: Array
    covariance: Array


class Clock(NamedTuple):
    """The part of the state that follows the values: the first five fields."""

    tick: Array
    ring: Array
    last: Array
    scale: Array
    seen: Array


def init(n: int, config: Config = DEFAULT) -> State:
    """Return the state of `n` series that have had no value."""
    judged = config.judged
    if not judged or list(judged) != sorted(set(judged)) or judged[0] < 1:
        raise ValueError(f"rls: judged horizons are {judged}; pass ascending ones from 1")
    if config.horizons < 1:
        raise ValueError(f"rls: horizons is {config.horizons}; pass 1 or more")
    if config.seasons < 1 or config.season <= judged[-1]:
        raise ValueError(
            f"rls: {config.seasons} seasons of {config.season} ticks; pass 1 or more, longer than {judged[-1]}"
        )
    if not 0 < config.forgetting <= 1:
        raise ValueError(f"rls: forgetting is {config.forgetting}; pass a share above 0, at most 1")
    eye = np.eye(_FEATURES, dtype=np.float32) * np.float32(config.prior)
    return State(
        tick=counts(()),
        ring=full((config.length, n), jnp.nan),
        last=full(n, 0.0),
        scale=full(n, 0.0),
        seen=counts(n),
        weights=full((_FEATURES, len(judged), n), 0.0),
        covariance=to_device(np.tile(eye[:, :, None, None], (1, 1, len(judged), n))),
    )


def _features(ring: Array, origin: Array, level: Array, scale: Array, horizon: int, config: Config) -> Array:
    """Return the features [F, N] of a forecast `horizon` ticks from tick `origin`, where z was `level`."""

    def ago(lag: int) -> Array:
        return ring[(origin - lag) % config.length]

    days = range(1, config.seasons + 1)
    target = [config.season * day - horizon for day in days]
    here = [config.season * day for day in days]
    # The season as one day ago (three ticks wide), as the mean of all days, and as the oldest day (the same
    # weekday when seven days are kept), each at the target's phase and at the origin's.
    rows = [
        mean_of_known([ago(target[0] + j) for j in (-1, 0, 1) if target[0] + j >= 0]),
        mean_of_known([ago(here[0] + j) for j in (-1, 0, 1)]),
        mean_of_known([ago(lag) for lag in target]),
        mean_of_known([ago(lag) for lag in here]),
        mean_of_known([ago(target[-1] + j) for j in (-1, 0, 1)]),
        mean_of_known([ago(here[-1] + j) for j in (-1, 0, 1)]),
        mean_of_known([ago(lag) for lag in range(_SHORT)]),
        *(ago(lag) for lag in _RECENT),
    ]
    x = jnp.stack(rows) - level
    x = jnp.clip(jnp.where(jnp.isfinite(x), x, 0.0) / scale, -_FEATURE_CLIP, _FEATURE_CLIP)
    return jnp.concatenate([x, constant((1, *level.shape), 1.0)])


def _dot(weights: Array, x: Array) -> Array:
    """Sum over the features one by one, in an order that no padding changes."""
    total = weights[0] * x[0]
    for f in range(1, _FEATURES):
        total = total + weights[f] * x[f]
    return total


class TickFeatures(NamedTuple):
    """Features made at a tick [F, J, N], their target [J, N] where known, and the current features."""

    made: Array
    target: Array
    known: Array
    now: Array
    unit: Array


def _observe(clock: Clock, y: Input, mask: Input, config: Config) -> tuple[Clock, TickFeatures]:
    """Add `y[N]` where `mask[N]`; return the features."""
    y = as_array(y)
    ok = mask & jnp.isfinite(y)
    z = jnp.log1p(jnp.maximum(y, 0.0))
    # Written before it is read, so that the ring is updated in place.
    ring = clock.ring.at[clock.tick % config.length].set(jnp.where(ok, z, jnp.nan))
    step = jnp.abs(z - clock.last)
    rate = jnp.maximum(config.scale_rate, 1.0 / (clock.seen + 1.0))
    moved = ok & (clock.seen > 0)
    scale = jnp.where(moved, clock.scale + rate * (step - clock.scale), clock.scale)
    unit = jnp.maximum(scale, _LEAST_SCALE)

    made: list[Array] = []
    targets: list[Array] = []
    now: list[Array] = []
    last = jnp.where(ok, z, clock.last)
    for h in config.judged:
        level = ring[(clock.tick - h) % config.length]
        made.append(_features(ring, clock.tick - h, level, unit, h, config))
        targets.append((z - level) / unit)
        now.append(_features(ring, clock.tick, last, unit, h, config))
    target = jnp.stack(targets)
    clock = Clock(clock.tick + 1, ring, last, scale, clock.seen + ok)
    return clock, TickFeatures(jnp.stack(made, axis=1), target, jnp.isfinite(target) & ok, jnp.stack(now, axis=1), unit)


def _project(covariance: Array, x: Array) -> tuple[Array, Array]:
    """Return P x and the diagonal of P, both [F, J, N]."""
    return _dot(covariance, x[:, None]), jnp.stack([covariance[f, f] for f in range(_FEATURES)])


def _weigh(
    weights: Array, diagonal: Array, px: Array, seen: TickFeatures, config: Config
) -> tuple[Array, Array, Array]:
    """Return the weights, the gain [F, J, N], and the factor of P [J, N]: 0 where P restarts.

    `diagonal` [F, J, N] is that of P before the update.
    """
    gain = px / (config.forgetting + jnp.maximum(_dot(px, seen.made), 0.0))
    error = jnp.clip(seen.target - _dot(weights, seen.made), -config.clip, config.clip)
    # An unknown target has no gain and no forgetting, which changes no bit and is cheaper than a choice.
    gain = jnp.where(seen.known, gain, 0.0)
    weights = weights + gain * jnp.where(seen.known, error, 0.0)
    diagonal = diagonal - gain * px
    trace, least = diagonal[0], diagonal[0]
    for f in range(1, _FEATURES):
        trace, least = trace + diagonal[f], jnp.minimum(least, diagonal[f])
    low = trace < config.trace * _FEATURES * config.forgetting
    stretch = jnp.where(seen.known & low, 1.0 / config.forgetting, 1.0)
    return weights, gain, jnp.where(least > 0, stretch, 0.0)


def _update(covariance: Array, px: Array, gain: Array, stretch: Array, config: Config) -> Array:
    """Return P after the observation."""
    eye = np.eye(_FEATURES, dtype=np.float32)[:, :, None, None] * np.float32(config.prior)
    return jnp.where(stretch > 0, (covariance - gain[:, None] * px) * stretch, eye)


def _predict(weights: Array, clock: Clock, seen: TickFeatures, config: Config) -> Array:
    """Return the forecasts as log(1 + y) [H, N]."""
    limit = math.log(config.growth)
    change = jnp.clip(seen.unit * _dot(weights, seen.now), -limit, limit)
    logs = jnp.maximum(clock.last + between(list(change), config.judged, config.horizons), 0.0)
    return jnp.where(clock.seen > 0, logs, jnp.nan)


# Programs of their own: in one the compiler would compute P x again for each element of P, ten times the work.
_observed = compiled_step(_observe)
_projected = compiled(_project)
_weighed = compiled_step(_weigh)
updated = compiled_step(_update)
_predicted = compiled_step(_predict, donate=False)


def update(weights: Array, covariance: Array, seen: TickFeatures, config: Config) -> tuple[Array, Array]:
    """Return weights and covariance after a tick; the arguments are donated."""
    px, diagonal = _projected(covariance, seen.made)
    weights, gain, stretch = _weighed(weights, diagonal, px, seen, config=config)
    return weights, updated(covariance, px, gain, stretch, config=config)


def ahead(state: State, y: Input, mask: Input, config: Config) -> tuple[State, Array]:
    """Update with `y[N]` where `mask[N]`; return the forecasts as log(1 + y) [H, N], at least 0.

    At a missing value, the forecasts start from the last known one. A series that never had a value is NaN.
    """
    clock, seen = _observed(Clock(*state[:5]), y, mask, config=config)
    weights, covariance = update(state.weights, state.covariance, seen, config)
    logs = _predicted(weights, clock, seen, config=config)
    return State(*clock, weights, covariance), logs
