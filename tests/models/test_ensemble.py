"""The ensemble is its experts and their mix, and names the weights it shows."""

import numpy as np
import pytest

from flyball_models.forecast import damped, ensemble, holt_winters, last, mix, rls, seasonal

N = 64
CONFIG = ensemble.configure(5, (1, 3), 6)


def test_it_is_the_experts_and_their_mix() -> None:
    rng = np.random.default_rng(2)
    y, mask = rng.gamma(2, 30, (40, N)).astype(np.float32), rng.random((40, N)) < 0.8
    whole = ensemble.init(N, CONFIG)
    members = [
        (last, CONFIG.ewma),
        (seasonal, CONFIG.seasonal),
        (damped, CONFIG.damped),
        (holt_winters, CONFIG.fast),
        (holt_winters, CONFIG.slow),
        (rls, CONFIG.rls),
    ]
    states = [family.init(N, config) for family, config in members]
    weighted = mix.init(N, CONFIG.mix)
    for t in range(40):
        whole, out = ensemble.step(whole, y[t], mask[t], CONFIG)
        stepped = [
            family.step(state, y[t], mask[t], config) for (family, config), state in zip(members, states, strict=True)
        ]
        states = [state for state, _ in stepped]
        forecasts = np.stack([np.asarray(forecast) for _, forecast in stepped])
        weighted, expected = mix.step(weighted, y[t], mask[t], forecasts, CONFIG.mix)
        np.testing.assert_allclose(out.forecast, expected.forecast, rtol=1e-3)
        np.testing.assert_allclose(out.weights, expected.weights, atol=1e-3)
        assert out.weights.shape == (N, 2, len(ensemble.EXPERTS))


def test_another_number_of_experts_is_refused() -> None:
    config = CONFIG._replace(mix=CONFIG.mix._replace(experts=2))
    with pytest.raises(ValueError, match="forecasts have shape"):
        ensemble.step(ensemble.init(N, config), np.ones(N, np.float32), np.ones(N, np.bool_), config)
