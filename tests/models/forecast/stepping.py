"""Models of forecasts stepped in the unit of the values, with the series first."""

from typing import Any

import jax.numpy as jnp

from flyball_models._arrays import Input
from flyball_models.forecast import (
    conformal,
    damped,
    ensemble,
    holt_winters,
    last,
    multi_seasonal,
    pooled,
    profile,
    rls,
    seasonal,
    weighting,
)
from flyball_models.forecast._scale import as_logs, in_units

LAST = last.Config((1.0, 0.5, 0.05), 5)
DAMPED = damped.Config(0.6, 0.05, 0.8, 5)
SEASONAL = seasonal.Config(6, 5)
WINTERS = holt_winters.Config(season=6, horizons=5)
SEASONS = multi_seasonal.Config(season=6, seasons=2, horizons=5)
RLS = rls.Config(season=6, seasons=2, judged=(1, 3), horizons=5, prior=0.5, forgetting=0.98)
BANDS = conformal.Config(horizons=6, lead=3, levels=(0.1, 0.5, 0.9, 0.95))
WEIGHTS = weighting.Config(experts=2, judged=(1, 3), horizons=5)
PROFILE = profile.Config(season=8, groups=((1,), (2,), (1, 2)), horizons=5)
_SHORT: dict[str, Any] = {
    "ewma": LAST,
    "damped": DAMPED,
    "seasonal": SEASONAL,
    "holt_winters": WINTERS,
    "holt_winters_slow": WINTERS,
    "day_and_week": SEASONS,
    "yesterday": PROFILE,
    "regression": RLS,
}
_ANY = ensemble.configure(5, (1, 3), 8)
SHORT = _ANY._replace(members=tuple(m._replace(config=_SHORT.get(m.names[0], m.config)) for m in _ANY.members))
"""Rings that are full after a few ticks, and one model twice, since only settings differ between the two.

The tests share these settings: to compile others takes seconds.
"""
TWELVE = ensemble.configure(4, (1, 2, 4), 12)
"""A season of twelve ticks; horizons are those of the engine's tests, so that one compilation is for both."""


def step(model: Any, state: Any, y: Input, mask: Input, config: Any = None) -> tuple[Any, Any]:
    """Update with `y[N]` where `mask[N]`; return the forecasts [N, H], or [N, H, G] of G experts."""
    config = model.DEFAULT if config is None else config
    state, logs = model.ahead(state, y, mask, config=config)
    if logs.ndim == 3 and logs.shape[1] == 1:  # one row for all horizons
        logs = jnp.broadcast_to(logs, (logs.shape[0], config.horizons, logs.shape[2]))
    return state, in_units(logs)


def banded(
    state: conformal.State, y: Input, mask: Input, forecast: Input, config: conformal.Config = conformal.DEFAULT
) -> tuple[conformal.State, conformal.Bands]:
    """Put quantiles [N, H, Q] around `forecast[N, H]`; the coverage is [N, Q]."""
    state, (bands, coverage, resolved) = conformal.around(state, y, mask, as_logs(forecast), config=config)
    return state, conformal.Bands(in_units(bands), coverage.T, resolved)


def blended(
    state: weighting.State, y: Input, mask: Input, forecasts: Input, config: weighting.Config
) -> tuple[weighting.State, weighting.Blend]:
    """Blend `forecasts[K - 1, N, H]`; return the forecast [N, H] and the weights [N, J, K]."""
    state, blend = weighting.combine(state, y, mask, (as_logs(forecasts),), config=config)
    return state, _in_units(blend)


def together(
    state: ensemble.State, y: Input, mask: Input, config: ensemble.Config
) -> tuple[ensemble.State, weighting.Blend]:
    """Step an ensemble; return the forecast [N, H] and the weights [N, J, K]."""
    state, blend = ensemble.ahead(state, y, mask, config)
    return state, _in_units(blend)


def common(state: pooled.State, y: Input, mask: Input, parts: Any, config: pooled.Config) -> tuple[pooled.State, Any]:
    """Step the model of all series; return the forecasts [N, H]."""
    state, logs = pooled.ahead(state, y, mask, parts, config)
    return state, in_units(logs)


def _in_units(blend: weighting.Blend) -> weighting.Blend:
    return weighting.Blend(in_units(blend.logs), blend.weights.transpose(2, 1, 0))
