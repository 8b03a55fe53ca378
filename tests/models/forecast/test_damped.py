"""Damped trend: statsmodels as oracle, and what a forecast must never be."""

import importlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from tests.models.forecast.stepping import step

from flyball_models._arrays import counts, full
from flyball_models.forecast import damped

H = 6


def played(values: list[float], config: damped.Config) -> tuple[damped.State, np.ndarray[Any, Any]]:
    state, out = damped.init(16, config), None
    for value in values:
        state, out = step(damped, state, np.full(16, value, np.float32), np.ones(16, np.bool_), config)
    assert out is not None
    return state, np.asarray(out[0])


def forecast(values: list[float], config: damped.Config) -> np.ndarray[Any, Any]:
    return played(values, config)[1]


@pytest.mark.parametrize(("alpha", "beta", "phi"), [(0.3, 0.1, 0.9), (0.8, 0.4, 0.82), (0.05, 0.9, 0.98)])
@pytest.mark.parametrize("trend", [0.0, 1.5])
def test_it_is_the_damped_holt_of_statsmodels(alpha: float, beta: float, phi: float, trend: float) -> None:
    rng = np.random.default_rng(5)
    y = (100 + np.cumsum(rng.normal(0.5, 3, 200))).astype(np.float32)
    oracle: Any = importlib.import_module("statsmodels.tsa.holtwinters")  # seconds, only where it is needed
    model = oracle.Holt(
        y[1:].astype(float),
        damped_trend=True,
        initialization_method="known",
        initial_level=float(y[0]),
        initial_trend=trend,
    )
    fit = model.fit(smoothing_level=alpha, smoothing_trend=beta, damping_trend=phi, optimized=False)
    config = damped.Config(alpha, beta, phi, horizons=H, log=False)
    state = damped.State(full(16, float(y[0])), full(16, trend), counts(16) + 1)
    fitted: list[float] = []
    out = None
    for value in y[1:]:
        fitted.append(float(state.level[0] + phi * state.trend[0]))
        state, out = step(damped, state, np.full(16, value, np.float32), np.ones(16, np.bool_), config)
    assert out is not None
    np.testing.assert_allclose(fitted, fit.fittedvalues, rtol=1e-4)
    np.testing.assert_allclose(out[0], fit.forecast(H), rtol=1e-4)


def test_on_the_log_scale_it_is_the_same_recursion_of_log1p() -> None:
    y = np.random.default_rng(1).gamma(3, 20, 100).astype(np.float32)
    plain = damped.Config(horizons=H, log=False)
    logged = damped.Config(horizons=H)
    expected = np.expm1(forecast([float(v) for v in np.log1p(y)], plain))
    np.testing.assert_allclose(forecast([float(v) for v in y], logged), expected, rtol=1e-4)


def test_the_first_value_is_the_first_level() -> None:
    np.testing.assert_allclose(forecast([42.0], damped.Config(horizons=H)), np.full(H, 42.0), rtol=1e-6)


def test_a_series_without_values_has_no_forecast() -> None:
    state, out = step(damped, damped.init(16), np.zeros(16, np.float32), np.zeros(16, np.bool_))
    assert np.isnan(out).all()
    assert not np.asarray(state.seen).any()


@given(st.lists(st.floats(-10, 2.0**60, width=32), min_size=1, max_size=12))
@settings(deadline=None, max_examples=60)
def test_forecasts_are_finite_never_negative_and_bounded(values: list[float]) -> None:
    state, out = played(values, damped.DEFAULT)
    assert np.isfinite(out).all()
    assert (out >= 0).all()
    level = max(float(state.level[0]), 0.0)
    assert (np.log1p(out) <= level + np.log(damped.DEFAULT.growth) + 1e-4).all()


def test_horizons_below_one_are_refused() -> None:
    with pytest.raises(ValueError, match="pass 1 or more"):
        damped.init(16, damped.Config(horizons=0))
