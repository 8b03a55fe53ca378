"""Online combination of point forecasts, weighted by recent losses (experts with fixed share).

The forecasts made h ticks ago are resolved by today's value. Per series and judged horizon, with the loss of
expert k in units of a running mean s of the last value's absolute error, capped, and its excess d over the
best:

    loss_k = min(|y - y^_k| / s, cap),   d_k = loss_k - min loss
    v_k = w_k / (1 + x + x^2 / 2),   x = eta d_k
    w_k' = (1 - share) v_k / sum v + share prior_k

and the blend is the weighted mean of log(1 + y^_k). Herbster and Warmuth, "Tracking the best expert", Machine
Learning 32, 1998, with exp(-x) replaced by the inverse of its first terms: plain arithmetic, which rounds
alike in every slot. The share lets an expert recover after bad forecasts, and so discounts old losses. An expert
without a forecast is left out, and at its resolution is charged the loss of the blend: it neither gains nor
loses weight (Chernov and Vovk, "Prediction with expert evaluators' advice", 2009).

Many experts that are each slightly worse than the last value (expert 0) would give a blend that is slightly
worse. So the same rule, at a slower rate, weights the whole blend against the last value, to which the forecast
falls back if the series is unpredictable.

A series without a resolved forecast gets the mean weights of the others (those with 50 resolved ones or more): what
works for similar workloads is the best guess for a new one.

Shapes: N series, K experts with the last value first, H horizons, J judged horizons, R = judged[-1] origins.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from flyball_models._arrays import Array, Input, as_array, constant, counts, full, to_device
from flyball_models._compile import compiled_step
from flyball_models._pool import mean_over_series
from flyball_models.forecast._scale import ahead_of, experts_of

_LEAST_SCALE = 1e-6
_LEAST_SUM = 1e-30
_OLD = 50
"""A series with this many resolved forecasts contributes to the initial weights of new ones."""


class Config(NamedTuple):
    """`experts` besides the last value; weights are learned at the horizons `judged`, ascending.

    A horizon uses the weights of the nearest judged one at or above it, the last ones beyond. `prior` is the initial
    weight of the last value; `trust_eta` and `trust_share` are the rates at which the blend gains weight against it.
    The forecast is at most a factor `growth` away from the last value.
    """

    experts: int = 4
    judged: tuple[int, ...] = (1, 6, 12)
    horizons: int = 12
    eta: float = 0.3
    share: float = 0.01
    cap: float = 8.0
    prior: float = 0.1
    trust_eta: float = 0.3
    trust_share: float = 0.0001
    scale_rate: float = 0.01
    growth: float = 16.0


DEFAULT = Config()


class State(NamedTuple):
    """Fitted weights, and the open forecasts by origin tick modulo R (NaN: none was made).

    tick []; last [N], NaN before the first value; issued [R, K + 1, J, N] in the unit of y, the blend last; scale,
    resolved, trust [J, N]: trust is the weight of the blend, the rest is the last value's; weights [K, J, N], which sum
    to 1 over K; shared [K + 1, J, 1]: the means of weights and trust that new series start with. A missing value leaves
    everything but the open forecasts and the shared values as it was.
    """

    tick: Array
    last: Array
    issued: Array
    scale: Array
    resolved: Array
    trust: Array
    weights: Array
    shared: Array


class Blend(NamedTuple):
    """The forecast as log(1 + y) [H, N], and the weights [K, J, N] that it was made with, 0 for an absent expert."""

    logs: Array
    weights: Array


def init(n: int, config: Config = DEFAULT) -> State:
    """Return the state of `n` series: the last value has its prior, the others share the rest evenly."""
    judged = config.judged
    if not judged or list(judged) != sorted(set(judged)) or judged[0] < 1:
        raise ValueError(f"weighting: judged horizons are {judged}; pass ascending ones from 1")
    if judged[-1] > config.horizons:
        raise ValueError(f"weighting: judged horizons are {judged}; pass none above the {config.horizons} horizons")
    if config.experts < 1:
        raise ValueError(f"weighting: experts is {config.experts}; pass 1 or more besides the last value")
    if not (0 <= config.share < 1 and 0 <= config.trust_share < 1):
        raise ValueError(f"weighting: shares are {config.share} and {config.trust_share}; pass shares below 1")
    k, j = config.experts + 1, len(judged)
    return State(
        tick=counts(()),
        last=full(n, jnp.nan),
        issued=full((judged[-1], k + 1, j, n), jnp.nan),
        scale=full((j, n), 0.0),
        resolved=counts((j, n)),
        trust=full((j, n), 0.5),
        weights=to_device(np.tile(_prior(config), (1, j, n))),
        shared=to_device(np.concatenate([np.tile(_prior(config), (1, j, 1)), np.full((1, j, 1), 0.5, np.float32)])),
    )


def _prior(config: Config) -> np.ndarray[tuple[int, int, int], np.dtype[np.float32]]:
    """Initial weights [K, 1, 1]."""
    rest = (1.0 - config.prior) / config.experts
    return np.array([config.prior, *[rest] * config.experts], np.float32)[:, None, None]


def _total(rows: Array) -> Array:
    """Sum over the experts one by one, in an order that no padding changes."""
    total = rows[0]
    for k in range(1, rows.shape[0]):
        total = total + rows[k]
    return total


def _worth(x: Array) -> Array:
    """Return about exp(-x), for x of at least 0."""
    return 1.0 / (1.0 + x * (1.0 + 0.5 * x))


def _started(resolved: Array, shared: Array, trust: Array, weights: Array) -> tuple[Array, Array]:
    """Return trust and weights; the shared ones if nothing is resolved yet."""
    new = resolved == 0
    return jnp.where(new, shared[-1], trust), jnp.where(new, shared[:-1], weights)


def _update(state: State, y: Array, ok: Array, config: Config) -> tuple[Array, Array, Array, Array]:
    """Return scale, resolved, trust and weights after the forecasts for this tick are resolved by `y[N]`."""
    origins, experts = config.judged[-1], config.experts + 1
    issued = [state.issued[(state.tick - h) % origins, :, j] for j, h in enumerate(config.judged)]
    error = jnp.abs(y - jnp.stack(issued, axis=1))
    known = ok & jnp.isfinite(error[0])
    rate = jnp.maximum(config.scale_rate, 1.0 / (state.resolved + 1.0))
    scale = jnp.where(known, state.scale + rate * (error[0] - state.scale), state.scale)
    error = jnp.where(jnp.isfinite(error), error, error[experts])
    loss = jnp.minimum(error / jnp.maximum(scale, _LEAST_SCALE), config.cap)

    least = loss[0]
    for k in range(1, experts):  # a reduction would be compiled by size
        least = jnp.minimum(least, loss[k])
    value = state.weights * _worth(config.eta * (loss[:experts] - least))
    weights = (1.0 - config.share) * value / jnp.maximum(_total(value), _LEAST_SUM) + config.share * _prior(config)

    least = jnp.minimum(loss[0], loss[experts])
    blend_worth = state.trust * _worth(config.trust_eta * (loss[experts] - least))
    flat = (1.0 - state.trust) * _worth(config.trust_eta * (loss[0] - least))
    trust = (1.0 - config.trust_share) * blend_worth / (blend_worth + flat) + 0.5 * config.trust_share
    return (
        scale,
        state.resolved + known,
        jnp.where(known, trust, state.trust),
        jnp.where(known, weights, state.weights),
    )


def _combine(state: State, y: Input, mask: Input, parts: Sequence[Array], config: Config) -> tuple[State, Blend]:
    """Resolve open forecasts with `y[N]` where `mask[N]`, then blend `parts`.

    These are the forecasts of all experts but the last value, made at this tick, after `y` was known, as log(1 + y);
    NaN if an expert has none. Forecasts at a tick without a value are blended, but not kept to be judged. A series that
    never had a value is NaN.
    """
    y = as_array(y)
    ok = jnp.isfinite(y) & mask
    y = jnp.maximum(y, 0.0)
    trust, weights = _started(state.resolved, state.shared, state.trust, state.weights)
    scale, resolved, trust, weights = _update(state._replace(trust=trust, weights=weights), y, ok, config)
    shared = mean_over_series(jnp.concatenate([weights, trust[None]]), resolved >= _OLD, state.shared)
    trust, weights = _started(resolved, shared, trust, weights)

    last, judged, limit = jnp.where(ok, y, state.last), config.judged, math.log(config.growth)
    floor, known = jnp.log1p(last), jnp.isfinite(last)
    experts = [floor[None], *experts_of(parts)]
    if len(experts) != config.experts + 1:
        raise ValueError(f"weighting: there are {len(experts) - 1} experts, the settings are for {config.experts}")
    made = [jnp.isfinite(rows) & known for rows in experts]
    change: list[Array] = []
    for j, (start, stop) in enumerate(pairwise((0, *judged[:-1], config.horizons))):
        total, worth = constant((), 0.0), constant((), 0.0)
        for k, (rows, has) in enumerate(zip(experts, made, strict=True)):
            rows, has = (x if x.shape[0] == 1 else x[start:stop] for x in (rows, has))
            weight = jnp.where(has, weights[k, j], 0.0)
            total = total + weight * jnp.where(has, jnp.clip(rows - floor, -limit, limit), 0.0)
            worth = worth + weight
        part = total / jnp.where(worth > 0, worth, 1.0)
        change.append(jnp.broadcast_to(part, (stop - start, *y.shape)))
    moved = jnp.concatenate(change)
    trusted = jnp.concatenate([trust[j] * part for j, part in enumerate(change)])
    logs = jnp.where(known, jnp.maximum(floor + trusted, 0.0), jnp.nan)

    at_judged = [jnp.stack([ahead_of(rows, h) for h in judged]) for rows in experts[1:]]
    issued = jnp.expm1(jnp.stack([*at_judged, jnp.stack([floor + moved[h - 1] for h in judged])]))
    issued = jnp.concatenate([jnp.broadcast_to(last, (1, len(judged), *y.shape)), issued])
    shown = jnp.where(jnp.stack([jnp.stack([ahead_of(has, h) for h in judged]) for has in made]), weights, 0.0)
    total = _total(shown)
    shown = shown * (trust / jnp.where(total > 0, total, 1.0))
    # The rest of the weight is the last value's.
    shown = jnp.concatenate([shown[:1] + jnp.where(known, 1.0 - trust, 0.0), shown[1:]])
    state = State(
        tick=state.tick + 1,
        last=last,
        issued=state.issued.at[state.tick % judged[-1]].set(jnp.where(ok, issued, jnp.nan)),
        scale=scale,
        resolved=resolved,
        trust=trust,
        weights=weights,
        shared=shared,
    )
    return state, Blend(logs, shown)


combine = compiled_step(_combine)
