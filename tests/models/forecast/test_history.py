"""A start from history: statsmodels goes on where the online models go on, with gaps, zeros and short series."""

import importlib
from typing import Any

import numpy as np
from tests.models.forecast.stepping import step

from flyball_models.forecast import damped, history, holt_winters

N, SEASON, H = 64, 12, 4
Floats = np.ndarray[Any, Any]


def daily(ticks: int, series: int = 3) -> Floats:
    rng = np.random.default_rng(3)
    turn = np.sin(2 * np.pi * np.arange(ticks)[:, None] / SEASON)
    return (50 * np.exp(0.8 * turn + 0.1 * rng.normal(size=(ticks, series)))).astype(np.float32)


def test_the_season_goes_on_as_statsmodels_forecasts_it() -> None:
    y = daily(10 * SEASON + 5)
    config = holt_winters.Config(0.3, 0.1, 0.2, 0.9, SEASON, H)
    state = history.holt_winters_state(y, N, config)
    made: Any = importlib.import_module("statsmodels.tsa.holtwinters")
    model = made.ExponentialSmoothing(
        history.filled(y[:, 1]),
        trend="add",
        damped_trend=True,
        seasonal="add",
        seasonal_periods=SEASON,
        initialization_method="heuristic",
    )
    rates = {"smoothing_level": 0.3, "smoothing_trend": 0.1, "smoothing_seasonal": 0.2 * 0.7, "damping_trend": 0.9}
    expected = np.expm1(model.fit(optimized=False, **rates).forecast(H + 1))
    # A tick without a value moves the phase on, so that the forecasts are for one tick later.
    none = np.zeros(N, np.bool_)
    _, out = step(holt_winters, state, np.zeros(N, np.float32), none, config)
    np.testing.assert_allclose(out[1], expected[1:], rtol=0.02)


def test_a_fitted_start_meets_the_recursion_that_saw_everything() -> None:
    y = daily(40 * SEASON)
    config = damped.Config(0.4, 0.1, 0.8, H)
    played = damped.init(N, config)
    for row in y:
        wide = np.pad(row, (0, N - 3))
        played, _ = step(damped, played, wide, wide > 0, config)
    fitted = history.damped_state(y, N, config)
    np.testing.assert_allclose(fitted.level[:3], played.level[:3], rtol=1e-3)
    np.testing.assert_allclose(fitted.trend[:3], played.trend[:3], atol=2e-3)
    assert (np.asarray(fitted.seen)[3:] == 0).all()
