"""The ensemble is its experts with their weights, names the weights it shows, and works without a season."""

import numpy as np
import pytest
from tests.models.forecast.stepping import SHORT, TWELVE, together

from flyball_models._arrays import Array, as_array
from flyball_models.forecast import (
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
from flyball_models.forecast._scale import ahead_of, experts_of

pytestmark = pytest.mark.timeout(600)  # it compiles much

N = 64


def test_it_is_the_experts_the_model_over_all_and_their_mix() -> None:
    rng = np.random.default_rng(2)
    y, mask = rng.gamma(2, 30, (40, N)).astype(np.float32), rng.random((40, N)) < 0.8
    whole = ensemble.init(N, SHORT)
    models = [last, damped, seasonal, holt_winters, holt_winters, multi_seasonal, profile, rls]
    members = [(model, member.config) for model, member in zip(models, SHORT.members, strict=True)]
    states = [model.init(N, config) for model, config in members]
    shared, weighted = pooled.init(N, SHORT.pooled), weighting.init(N, SHORT.weights)
    parts: list[Array] = []
    for t in range(40):
        row, known = as_array(y[t]), as_array(mask[t])
        whole, out = ensemble.ahead(whole, row, known, SHORT)
        stepped = [
            model.ahead(state, row, known, config=config)
            for (model, config), state in zip(members, states, strict=True)
        ]
        states = [state for state, _ in stepped]
        parts = [logs for _, logs in stepped]
        shared, one = pooled.ahead(shared, row, known, parts, SHORT.pooled)
        weighted, expected = weighting.combine(weighted, row, known, (*parts, one), config=SHORT.weights)
        np.testing.assert_array_equal(out.logs, expected.logs)
        np.testing.assert_array_equal(out.weights, expected.weights)
        assert out.weights.shape == (len(SHORT.experts), 2, N)
    made = [np.asarray(part) for part in parts]
    own = [rows for part in made for rows in ([part] if part.ndim == 2 else part)]
    assert len(own) == len(SHORT.experts) - 2  # besides the last value and the model over all
    for found, rows in zip(experts_of(parts), own, strict=True):
        for horizon in range(1, SHORT.weights.horizons + 1):
            np.testing.assert_array_equal(ahead_of(found, horizon), rows[min(horizon, len(rows)) - 1])


def test_each_expert_has_a_name() -> None:
    for config in (SHORT, ensemble.configure(5, (1, 3))):
        assert len(set(config.experts)) == config.weights.experts + 1
        assert config.experts[0] == "last"


def test_a_daily_series_is_forecast_better_than_by_its_last_value_and_a_random_walk_no_worse() -> None:
    rng = np.random.default_rng(4)
    season, ticks = 12, 12 * 32
    daily = 50 * np.exp(np.sin(2 * np.pi * np.arange(ticks)[:, None] / season) + 0.05 * rng.normal(size=(ticks, N)))
    walk = 50 * np.exp(0.05 * rng.normal(size=(ticks, N)).cumsum(axis=0))
    for y, most in ((daily, 0.5), (walk, 1.03)):
        state, made = ensemble.init(N, TWELVE), list[np.ndarray]()
        for row in y.astype(np.float32):
            state, out = together(state, row, np.ones(N, np.bool_), TWELVE)
            made.append(np.asarray(out.logs)[:, 3])
        error = np.abs(np.stack(made)[:-4] - y[4:])[16 * season :].mean()
        flat = np.abs(y[:-4] - y[4:])[16 * season :].mean()
        assert error < most * flat


def test_another_number_of_experts_is_refused() -> None:
    config = SHORT._replace(weights=SHORT.weights._replace(experts=2))
    with pytest.raises(ValueError, match="there are 13 experts, the settings are for 2"):
        together(ensemble.init(N, config), np.ones(N, np.float32), np.ones(N, np.bool_), config)
