"""Online mix of point forecasts, weighted by what each was worth lately (experts with fixed share).

The forecasts made h ticks ago are resolved by today's value. Per series and judged horizon, with the loss of
expert k relative to a running mean of the last value's absolute error, capped:

    loss_k = min(|y - y^_k| / scale, cap)
    v_k = w_k exp(-eta loss_k),   w_k' = (1 - share) v_k / sum v + share / K

and the mix is the weighted mean of log(1 + y^_k). Herbster and Warmuth, "Tracking the best expert", Machine
Learning 32, 1998: the share lets an expert that was bad come back, and so discounts old losses. An expert
without a forecast has no part in it, and at its resolution is charged what the mix lost: it neither
gains nor loses weight (Chernov and Vovk, "Prediction with expert evaluators' advice", 2009). The last value
is always expert 0, so that there always is something to fall back to.

Shapes: N series, K experts with the last value first, H horizons, J judged horizons, R = judged[-1] origins.
"""

from typing import NamedTuple

import jax.numpy as jnp

from flyball_models._arrays import Array, Input, as_array, counts, full
from flyball_models._compile import compiled_step
from flyball_models._padding import grow

_LEAST_SCALE = 1e-6
_LEAST_SUM = 1e-30


class Config(NamedTuple):
    """`experts` besides the last value; weights are learned at the horizons `judged`, ascending.

    A horizon uses the weights of the nearest judged one at or above it, the last ones beyond.
    """

    experts: int = 4
    judged: tuple[int, ...] = (1, 6, 12)
    horizons: int = 12
    eta: float = 0.2
    share: float = 0.01
    cap: float = 8.0
    scale_rate: float = 0.01


DEFAULT = Config()


class State(NamedTuple):
    """What is learned, and the open forecasts by origin tick modulo R (NaN: none was made).

    tick []; last [N], NaN before the first value; issued [R, K, J, N] in the unit of y; scale [J, N];
    resolved [J, N]; weights [K, J, N], which sum to 1 over K. A missing value leaves everything but the open
    forecasts as it was.
    """

    tick: Array
    last: Array
    issued: Array
    scale: Array
    resolved: Array
    weights: Array


class Mixed(NamedTuple):
    """forecast [N, H] in the unit of y; weights [N, J, K] that it was made with, 0 for an absent expert."""

    forecast: Array
    weights: Array


def init(n: int, config: Config = DEFAULT) -> State:
    """Return the state of `n` series: all experts count alike."""
    judged = config.judged
    if not judged or list(judged) != sorted(set(judged)) or judged[0] < 1:
        raise ValueError(f"mix: judged horizons are {judged}; pass ascending ones from 1")
    if judged[-1] > config.horizons:
        raise ValueError(f"mix: judged horizons are {judged}; pass none above the {config.horizons} horizons")
    if not 0 <= config.share < 1:
        raise ValueError(f"mix: share is {config.share}; pass a share below 1")
    k, j = config.experts + 1, len(judged)
    return State(
        tick=counts(()),
        last=full(n, jnp.nan),
        issued=full((judged[-1], k, j, n), jnp.nan),
        scale=full((j, n), 0.0),
        resolved=counts((j, n)),
        weights=full((k, j, n), 1.0 / k),
    )


def resize(state: State, n: int, config: Config = DEFAULT) -> State:
    """Return the state with room for `n` series, its content kept."""
    return grow(state, n, lambda size: init(size, config))


def _total(rows: Array) -> Array:
    """Sum over the experts one by one, in an order that no padding changes."""
    total = rows[0]
    for k in range(1, rows.shape[0]):
        total = total + rows[k]
    return total


def _present(weights: Array, forecasts: Array) -> tuple[Array, Array]:
    """Return the weights among the forecasts [K, ...] that were made, and their mean on the log scale."""
    made = jnp.isfinite(forecasts)
    weights = jnp.where(made, weights, 0.0)
    total = _total(weights)
    weights = weights / jnp.where(total > 0, total, 1.0)
    logs = jnp.where(made, jnp.log1p(jnp.maximum(forecasts, 0.0)), 0.0)
    return weights, jnp.where(total > 0, jnp.expm1(_total(weights * logs)), jnp.nan)


def _step(state: State, y: Input, mask: Input, forecasts: Input, config: Config = DEFAULT) -> tuple[State, Mixed]:
    """Resolve open forecasts with `y[N]` where `mask[N]`, then mix `forecasts[K - 1, N, H]`.

    `forecasts` are what the experts besides the last value made at this tick, after `y` was known; NaN where
    one has none. Forecasts made at a tick without a value are mixed, but not kept to be judged. A series
    that never had a value, and has no forecast, is NaN.
    """
    y, forecasts = as_array(y), as_array(forecasts)
    shape = (config.experts, *y.shape, config.horizons)
    if forecasts.shape != shape:
        raise ValueError(f"mix: forecasts have shape {forecasts.shape}, not {shape}")
    ok = mask & jnp.isfinite(y)
    y = jnp.maximum(y, 0.0)
    groups = range(len(config.judged))

    open_ = jnp.stack(
        [state.issued[(state.tick - h) % config.judged[-1], :, j] for j, h in enumerate(config.judged)], axis=1
    )
    error = jnp.abs(y - open_)
    known = ok & jnp.isfinite(error[0])
    rate = jnp.maximum(config.scale_rate, 1.0 / (state.resolved + 1.0))
    scale = jnp.where(known, state.scale + rate * (error[0] - state.scale), state.scale)
    _, mixed = _present(state.weights, open_)
    error = jnp.where(jnp.isfinite(error), error, jnp.abs(y - mixed))
    loss = jnp.minimum(error / jnp.maximum(scale, _LEAST_SCALE), config.cap)
    least = loss[0]
    for k in range(1, config.experts + 1):  # a reduction would be compiled by size, and padding change bits
        least = jnp.minimum(least, loss[k])
    value = state.weights * jnp.exp(config.eta * (least - loss))
    weights = (1.0 - config.share) * value / jnp.maximum(_total(value), _LEAST_SUM) + config.share / (
        config.experts + 1
    )
    weights = jnp.where(known, weights, state.weights)

    last = jnp.where(ok, y, state.last)
    held = jnp.broadcast_to(last[:, None], forecasts.shape[1:])
    # [K, H, N]: the series axis last, as all that is learned.
    every = jnp.concatenate([held[None], forecasts]).transpose(0, 2, 1)
    of = [next((j for j in groups if config.judged[j] >= h), groups[-1]) for h in range(1, config.horizons + 1)]
    _, forecast = _present(weights[:, as_array(of)], every)
    judged = every[:, as_array([h - 1 for h in config.judged])]
    shown, _ = _present(weights, judged)
    state = State(
        tick=state.tick + 1,
        last=last,
        issued=state.issued.at[state.tick % config.judged[-1]].set(jnp.where(ok, judged, jnp.nan)),
        scale=scale,
        resolved=state.resolved + known,
        weights=weights,
    )
    return state, Mixed(forecast.T, shown.transpose(2, 1, 0))


step = compiled_step(_step)
