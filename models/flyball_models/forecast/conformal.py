"""Calibrated quantiles around any point forecast, by online quantile tracking per series and horizon.

The forecast made h ticks ago is resolved by today's value; its residual on the log scale, in units of a
running scale s, moves the offset q of each quantile level a:

    r = log((y + 1) / (y^ + 1)),   u = r / s
    q += eta_a (a - 1{u <= q}),    s += rate (|r| - s),    eta_a = eta sqrt(1/2 / min(a, 1 - a))
    quantile(a) = (y^ + 1) exp(q s) - 1

For any sequence of values the share of u <= q tends to a. Gibbs and Candes, "Adaptive conformal inference under
distribution shift", NeurIPS 2021; Angelopoulos, Candes and Tibshirani, "Conformal PID control for time series
prediction", NeurIPS 2023 (the P part). Offsets in units of s let a series that calms down narrow at the pace of s;
offsets in plain log units would stay wide, since their steps shrink with s. Steps are larger in the tails: the step of
the median would move a 99 % quantile by a hundredth only, and heavy tails need more. A bound keeps a quantile from
exploding where the forecast is small, but never below the recent maximum of the series: a load that is 0 between bursts
is not bounded by its idle times. A series starts with the mean scale and offsets of the others (those with 50 residuals
or more).

Shapes: N series, H horizons, Q levels. The series axis is the last one, so that each learned row is
contiguous.
"""

import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from flyball_models._arrays import Array, Input, arange, as_array, counts, full, to_device
from flyball_models._compile import compiled_step
from flyball_models._pool import mean_over_series

_PRIOR_WEIGHT = 4.0
"""How many residuals the prior scale is worth."""
_OLD = 50
"""A series with this many residuals contributes to the initial offsets of new ones."""
_LEAST_SCALE = 1e-4
"""Keeps u finite on a series that is forecast exactly; 0.01 % of the value."""


class Config(NamedTuple):
    """Quantile `levels`, ascending; `lead` is the horizon, in ticks, whose coverage is judged.

    `prior` is the scale before any residual, in log units. 1 + quantile is at most `growth` times 1 + the larger of
    forecast and last value, or 1 + the peak if that is more; a peak loses `peak_rate` of its log per tick.
    """

    horizons: int = 12
    lead: int = 6
    levels: tuple[float, ...] = (0.1, 0.5, 0.9)
    eta: float = 0.05
    scale_rate: float = 0.01
    coverage_rate: float = 0.01
    prior: float = 0.5
    growth: float = 16.0
    peak_rate: float = 0.001


DEFAULT = Config()


class State(NamedTuple):
    """Fitted parameters, and the open forecasts by origin tick (NaN: none was made).

    tick []; last = log(1 + newest value), and peak = log(1 + peak) [N], 0 before the first value; issued
    [H + 1, H, N] = log(1 + forecast) by origin modulo H + 1 and horizon; bound [lead + 1, Q, N] = log(1 + quantile) at
    the lead horizon by origin modulo lead + 1, except for the newest origin, whose bounds are newest [Q, N]; offset [Q,
    H, N]; scale [H, N]; resolved [H, N]; coverage [Q, N]; shared [Q + 1, H, 1]: the mean offsets and the mean scale
    that new series start with. A missing value leaves everything but the open forecasts and the shared values as it
    was.
    """

    tick: Array
    last: Array
    peak: Array
    issued: Array
    bound: Array
    newest: Array
    offset: Array
    scale: Array
    resolved: Array
    coverage: Array
    shared: Array


class Bands(NamedTuple):
    """quantiles [Q, H, N] as log(1 + y); coverage [Q, N]; resolved [N].

    Coverage is the exponentially weighted share of values at or below the lead quantiles as they were
    issued: a quantile is honest when its coverage is near its level. It is NaN before the first.
    """

    quantiles: Array
    coverage: Array
    resolved: Array


def init(n: int, config: Config = DEFAULT) -> State:
    """Return the state of `n` series without residuals: the spread is a wide prior."""
    h, q = config.horizons, len(config.levels)
    if not 1 <= config.lead <= h:
        raise ValueError(f"conformal: lead is {config.lead}; pass a horizon in 1..{h}")
    if not q or list(config.levels) != sorted(set(config.levels)):
        raise ValueError(f"conformal: levels are {config.levels}; pass ascending ones")
    if not 0 < config.levels[0] <= config.levels[-1] < 1:
        raise ValueError(f"conformal: levels are {config.levels}; pass shares between 0 and 1")
    # Quantiles of a Laplace distribution with E|r| = 1: the residuals of loads have tails heavier than normal.
    start = np.array([math.copysign(-math.log(2 * min(a, 1 - a)), a - 0.5) for a in config.levels], np.float32)[
        :, None, None
    ]
    return State(
        tick=counts(()),
        last=full(n, 0.0),
        peak=full(n, 0.0),
        issued=full((h + 1, h, n), jnp.nan),
        bound=full((config.lead + 1, q, n), jnp.nan),
        newest=full((q, n), jnp.nan),
        offset=to_device(np.tile(start, (1, h, n))),
        scale=full((h, n), config.prior),
        resolved=counts((h, n)),
        coverage=full((q, n), 0.0),
        shared=to_device(np.concatenate([np.tile(start, (1, h, 1)), np.full((1, h, 1), config.prior, np.float32)])),
    )


def _started(resolved: Array, shared: Array, offset: Array, scale: Array) -> tuple[Array, Array]:
    """Return offset and scale; the shared ones if nothing is resolved yet."""
    new = resolved == 0
    return jnp.where(new, shared[:-1], offset), jnp.where(new, shared[-1], scale)


def _ascending(rows: list[Array]) -> list[Array]:
    """Sort a few rows elementwise by compare-exchange (odd-even transposition)."""
    rows = list(rows)
    for turn in range(len(rows)):
        for i in range(turn % 2, len(rows) - 1, 2):
            low, high = rows[i], rows[i + 1]
            rows[i], rows[i + 1] = jnp.minimum(low, high), jnp.maximum(low, high)
    return rows


def _around(state: State, y: Input, mask: Input, point: Array, config: Config) -> tuple[State, Bands]:
    """Resolve open forecasts with `y[N]` where `mask[N]`, then put quantiles around log(1 + forecast), `point` [H, N].

    `point` is the forecast that was made at this tick, after `y` was known. Forecasts made at a tick without a value
    get quantiles, but are not kept to be judged. A NaN forecast has NaN quantiles.
    """
    y = as_array(y)
    h, lead = config.horizons, config.lead
    if point.shape != (h, *y.shape):
        raise ValueError(f"conformal: forecast has shape {point.shape[::-1]}, not {(*y.shape, h)}")
    ok = mask & jnp.isfinite(y)
    z = jnp.log1p(jnp.maximum(y, 0.0))
    horizon = arange(1, h + 1)
    level = as_array(config.levels)[:, None]
    eta = as_array([config.eta * math.sqrt(0.5 / min(a, 1 - a)) for a in config.levels])[:, None, None]
    made = jnp.isfinite(point)  # computed first, since minimum and maximum need not propagate NaN
    point = jnp.maximum(point, 0.0)

    # Rings are written before they are read, and have one place more than open forecasts, so they are updated in place.
    issued = state.issued.at[state.tick % (h + 1)].set(jnp.where(ok & made, point, jnp.nan))
    bound = state.bound.at[(state.tick - 1) % (lead + 1)].set(state.newest)

    before, width = _started(state.resolved, state.shared, state.offset, state.scale)
    residual = z - issued[(state.tick - horizon) % (h + 1), horizon - 1]
    known = ok & jnp.isfinite(residual)
    hit = residual <= before * width
    offset = jnp.where(known, before + eta * (level[:, None] - hit), before)
    rate = jnp.maximum(config.scale_rate, 1.0 / (state.resolved + 1.0 + _PRIOR_WEIGHT))
    scale = width + rate * (jnp.abs(residual) - width)
    scale = jnp.where(known, jnp.maximum(scale, _LEAST_SCALE), width)

    kept = z <= bound[(state.tick - lead) % (lead + 1)]
    rate = jnp.maximum(config.coverage_rate, 1.0 / (state.resolved[lead - 1] + 1.0))
    coverage = jnp.where(known[lead - 1], state.coverage + rate * (kept - state.coverage), state.coverage)
    resolved = state.resolved + known
    shared = mean_over_series(jnp.concatenate([offset, scale[None]]), resolved >= _OLD, state.shared)
    offset, scale = _started(resolved, shared, offset, scale)

    last = jnp.where(ok, z, state.last)
    peak = jnp.where(ok, jnp.maximum(z, (1.0 - config.peak_rate) * state.peak), state.peak)
    most = jnp.maximum(jnp.maximum(point, last) + math.log(config.growth), peak)
    rows = _ascending([point + offset[q] * scale for q in range(len(config.levels))])
    bands = jnp.stack([jnp.where(made, jnp.clip(row, 0.0, most), jnp.nan) for row in rows])

    state = State(
        tick=state.tick + 1,
        last=last,
        peak=peak,
        issued=issued,
        bound=bound,
        newest=jnp.where(ok, bands[:, lead - 1], jnp.nan),
        offset=offset,
        scale=scale,
        resolved=resolved,
        coverage=coverage,
        shared=shared,
    )
    judged = jnp.where(resolved[lead - 1] > 0, coverage, jnp.nan)
    return state, Bands(bands, judged, resolved[lead - 1])


around = compiled_step(_around)
