"""Holt-Winters: statsmodels and a slow loop as oracles, and what seasons must do."""

import importlib
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from tests.models.forecast.stepping import step

from flyball_models._arrays import as_array, counts, full
from flyball_models.forecast import damped, holt_winters

N, H, SEASON = 64, 6, 8
ONES = np.ones(N, np.bool_)
Floats = np.ndarray[Any, Any]


def played(y: Floats, config: holt_winters.Config, mask: Floats | None = None) -> Floats:
    """Return the forecasts [T, H] of the first series."""
    state = holt_winters.init(N, config)
    rows: list[Floats] = []
    for t, value in enumerate(y):
        here = ONES if mask is None else np.full(N, mask[t])
        state, out = step(holt_winters, state, np.full(N, value, np.float32), here, config)
        rows.append(np.asarray(out[0]))
    return np.stack(rows)


@pytest.mark.parametrize(("alpha", "beta", "gamma", "phi"), [(0.3, 0.1, 0.2, 0.9), (0.7, 0.0, 0.5, 0.85)])
def test_it_is_the_damped_additive_smoothing_of_statsmodels(
    alpha: float, beta: float, gamma: float, phi: float
) -> None:
    rng = np.random.default_rng(5)
    season = rng.normal(0, 10, SEASON)
    y = (200 + np.tile(season, 20) + np.cumsum(rng.normal(0, 2, 20 * SEASON))).astype(np.float32)
    oracle: Any = importlib.import_module("statsmodels.tsa.holtwinters")  # seconds, only where it is needed
    model = oracle.ExponentialSmoothing(
        y.astype(float),
        trend="add",
        damped_trend=True,
        seasonal="add",
        seasonal_periods=SEASON,
        initialization_method="known",
        initial_level=200.0,
        initial_trend=0.5,
        initial_seasonal=season,
    )
    fit = model.fit(
        smoothing_level=alpha,
        smoothing_trend=beta,
        smoothing_seasonal=gamma * (1 - alpha),
        damping_trend=phi,
        optimized=False,
    )
    config = holt_winters.Config(alpha, beta, gamma, phi, SEASON, H, log=False)
    state = holt_winters.State(
        tick=counts(()),
        since=counts(N) - 100 * SEASON,  # long ago, so that gamma is what it is set to
        seen=counts(N) + 1,
        level=full(N, 200.0),
        trend=full(N, 0.5),
        base=full(N, 0.0),
        seasonal=counts(N) == 0,
        ring=as_array(np.repeat(season.astype(np.float32)[:, None], N, axis=1)),
        due=full(N, float(season[0])),
    )
    ahead: list[float] = []
    out = None
    for value in y:
        state, out = step(holt_winters, state, np.full(N, value, np.float32), ONES, config)
        ahead.append(float(out[0, 0]))
    assert out is not None
    np.testing.assert_allclose(ahead[:-1], fit.fittedvalues[1:], rtol=1e-4)
    np.testing.assert_allclose(out[0], fit.forecast(H), rtol=1e-4)


def test_cold_start_and_gaps_are_the_recursion_written_out() -> None:
    """A slow oracle in float64: the season by phase in a dictionary, from the first value on."""
    rng = np.random.default_rng(8)
    config = holt_winters.Config(0.4, 0.1, 0.2, 0.9, SEASON, H)
    y = np.exp(4 + np.sin(np.arange(90) / SEASON * 2 * np.pi) + 0.1 * rng.normal(size=90))
    mask = rng.random(90) < 0.8
    mask[:3] = False
    forecasts = played(y, config, mask)
    level = trend = base = 0.0
    since, seen, on = -1, 0, False
    ring: dict[int, float] = {}
    for t in range(90):
        phase = t % SEASON
        if mask[t]:
            z = math.log1p(y[t])
            since = t if seen == 0 else since
            age = (t - since) // SEASON
            if not on and age >= 1 and phase in ring:
                on, level = True, level - (ring[phase] - base)
            s = ring[phase] - base if on and phase in ring else 0.0
            carried = level + 0.9 * trend
            e = z - carried - s
            if on:
                gamma = max(0.2, 1 / (age + 1)) * 0.6
                ring[phase] = ring[phase] + gamma * e if phase in ring else base + z - carried
            else:
                ring[phase], base = z, base + (z - base) / (seen + 1)
            level, trend = (z, 0.0) if seen == 0 else (carried + 0.4 * e, 0.9 * trend + 0.04 * e)
            seen += 1
        for h in range(1, H + 1):
            ahead = (t + h) % SEASON
            s = ring[ahead] - base if on and ahead in ring else 0.0
            expected = math.expm1(level + trend * sum(0.9**i for i in range(1, h + 1)) + s) if seen else math.nan
            np.testing.assert_allclose(forecasts[t, h - 1], expected, rtol=1e-3)


def test_before_a_season_has_passed_it_is_the_damped_trend() -> None:
    y = np.random.default_rng(1).gamma(3, 20, SEASON)
    config = holt_winters.Config(season=SEASON, horizons=H)
    plain = damped.Config(config.alpha, config.beta, config.phi, H)
    state, out = damped.init(N, plain), None
    for value in y:
        state, out = step(damped, state, np.full(N, value, np.float32), ONES, plain)
    assert out is not None
    np.testing.assert_allclose(played(y, config)[-1], out[0], rtol=1e-5)


def test_it_fits_a_season_and_keeps_it_over_a_level_shift() -> None:
    t = np.arange(60 * SEASON)
    y = (50 * np.exp(np.sin(2 * np.pi * t / SEASON)) - 1) * np.where(t > 30 * SEASON, 3, 1)
    out = played(y, holt_winters.Config(season=SEASON, horizons=H))
    np.testing.assert_allclose(out[-7, :6], y[-6:], rtol=0.05)


@given(st.lists(st.floats(-10, 2.0**60, width=32), min_size=1, max_size=25))
@settings(deadline=None, max_examples=40)
def test_forecasts_are_finite_and_never_negative(values: list[float]) -> None:
    out = played(np.array(values), holt_winters.Config(season=SEASON, horizons=H))
    assert np.isfinite(out).all()
    assert (out >= 0).all()


@pytest.mark.parametrize(
    ("config", "message"),
    [(holt_winters.Config(season=1), "pass 2 or more"), (holt_winters.Config(horizons=0), "pass 1 or more")],
)
def test_settings_that_make_no_sense_are_refused(config: holt_winters.Config, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        holt_winters.init(N, config)
