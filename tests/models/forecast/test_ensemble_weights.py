"""The ensemble is its experts with their weights, names the weights it shows, and can start from a history."""

import numpy as np
import pytest
from tests.models.forecast.stepping import TWELVE, together

from flyball_models._arrays import Array, as_array
from flyball_models.forecast import (
    damped,
    ensemble,
    history,
    holt_winters,
    last,
    multi_seasonal,
    pooled,
    profile,
    rls,
    seasonal,
    weighting,
)
from flyball_models.forecast._scale import ahead_of, experts_of

pytestmark = pytest.mark.timeout(600)  # it compiles much

N = 64


def test_it_is_the_experts_the_model_over_all_and_their_mix() -> None:
    """For longer than a week of the settings, so that each expert has a forecast."""
    rng = np.random.default_rng(2)
    y, mask = rng.gamma(2, 30, (100, N)).astype(np.float32), rng.random((100, N)) < 0.8
    whole = ensemble.init(N, TWELVE)
    models = [last, damped, seasonal, holt_winters, holt_winters, multi_seasonal, profile, rls]
    members = [(model, member.config) for model, member in zip(models, TWELVE.members, strict=True)]
    states = [model.init(N, config) for model, config in members]
    shared, weighted = pooled.init(N, TWELVE.pooled), weighting.init(N, TWELVE.weights)
    parts: list[Array] = []
    for t in range(100):
        row, known = as_array(y[t]), as_array(mask[t])
        whole, out = ensemble.ahead(whole, row, known, TWELVE)
        stepped = [
            model.ahead(state, row, known, config=config)
            for (model, config), state in zip(members, states, strict=True)
        ]
        states = [state for state, _ in stepped]
        parts = [logs for _, logs in stepped]
        shared, one = pooled.ahead(shared, row, known, parts, TWELVE.pooled)
        weighted, expected = weighting.combine(weighted, row, known, (*parts, one), config=TWELVE.weights)
        np.testing.assert_array_equal(out.logs, expected.logs)
        np.testing.assert_array_equal(out.weights, expected.weights)
        assert out.weights.shape == (len(TWELVE.experts), 3, N)
    made = [np.asarray(part) for part in parts]
    own = [rows for part in made for rows in ([part] if part.ndim == 2 else part)]
    assert len(own) == len(TWELVE.experts) - 2  # besides the last value and the model over all
    for found, rows in zip(experts_of(parts), own, strict=True):
        for horizon in range(1, TWELVE.weights.horizons + 1):
            np.testing.assert_array_equal(ahead_of(found, horizon), rows[min(horizon, len(rows)) - 1])


def test_each_expert_has_a_name() -> None:
    for config in (TWELVE, ensemble.configure(5, (1, 3))):
        assert len(set(config.experts)) == config.weights.experts + 1
        assert config.experts[0] == "last"


def test_a_daily_series_is_forecast_better_than_by_its_last_value_and_a_random_walk_no_worse() -> None:
    """Half of the series are daily, half are random walks; the model over all learns from both."""
    rng = np.random.default_rng(4)
    season, ticks, half = 12, 12 * 32, N // 2
    daily = np.exp(np.sin(2 * np.pi * np.arange(ticks)[:, None] / season) + 0.05 * rng.normal(size=(ticks, half)))
    walk = np.exp(0.05 * rng.normal(size=(ticks, half)).cumsum(axis=0))
    y = 50 * np.concatenate([daily, walk], axis=1)
    state, made = ensemble.init(N, TWELVE), list[np.ndarray]()
    for row in y.astype(np.float32):
        state, out = together(state, row, np.ones(N, np.bool_), TWELVE)
        made.append(np.asarray(out.logs)[:, 3])
    error = np.abs(np.stack(made)[:-4] - y[4:])[16 * season :]
    flat = np.abs(y[:-4] - y[4:])[16 * season :]
    for part, most in ((slice(half), 0.5), (slice(half, None), 1.03)):
        assert error[:, part].mean() < most * flat[:, part].mean()


def test_another_number_of_experts_is_refused() -> None:
    config = TWELVE._replace(weights=TWELVE.weights._replace(experts=2))
    with pytest.raises(ValueError, match="there are 13 experts, the settings are for 2"):
        together(ensemble.init(N, config), np.ones(N, np.float32), np.ones(N, np.bool_), config)


def test_an_ensemble_with_a_history_forecasts_a_season_that_a_new_one_cannot_know() -> None:
    season, horizons = 12, TWELVE.weights.horizons
    rng = np.random.default_rng(3)
    turn = np.sin(2 * np.pi * np.arange(8 * season)[:, None] / season)
    y = (50 * np.exp(0.8 * turn + 0.1 * rng.normal(size=(8 * season, 3)))).astype(np.float32)
    y[20:40, 0] = np.nan  # a gap
    y[:, 1] = 0.0
    y[: 7 * season, 2] = np.nan  # almost new
    state = ensemble.init(N, TWELVE)
    for row in y[:-horizons]:
        wide = np.pad(row, (0, N - 3), constant_values=np.nan).astype(np.float32)
        state, _ = together(state, wide, np.isfinite(wide), TWELVE)
    state = history.fitted(y[:-horizons], state, TWELVE)
    mask = np.arange(N) < 2
    _, out = together(state, np.zeros(N, np.float32), np.zeros(N, np.bool_), TWELVE)
    assert np.isfinite(np.asarray(out.logs)[mask]).all()
    truth = y[8 * season - horizons + 1 :, 0]  # the tick without a value has passed
    flat = np.abs(y[8 * season - horizons - 1, 0] - truth).mean()
    assert np.abs(np.asarray(out.logs)[0, : horizons - 1] - truth).mean() < 0.6 * flat
    np.testing.assert_allclose(out.logs[1], 0.0, atol=1e-3)
    assert np.isnan(np.asarray(out.logs)[3:]).all()
