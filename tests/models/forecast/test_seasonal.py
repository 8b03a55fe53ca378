"""Seasonal naive against a dictionary of phases."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from tests.models.forecast.stepping import step

from flyball_models.forecast import seasonal

CONFIG = seasonal.Config(7, 5)


@given(st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=20)
def test_it_is_the_newest_known_value_of_the_phase(seed: int) -> None:
    rng = np.random.default_rng(seed)
    y, mask = rng.gamma(1, 10, (40, 64)).astype(np.float32), rng.random((40, 64)) < 0.6
    state = seasonal.init(64, CONFIG)
    phases: dict[tuple[int, int], float] = {}
    for t in range(40):
        state, out = step(seasonal, state, y[t], mask[t], CONFIG)
        for n in np.flatnonzero(mask[t]):
            phases[t % 7, int(n)] = float(y[t, n])
        expected = [[phases.get(((t + h) % 7, n), np.nan) for h in range(1, 6)] for n in range(64)]
        np.testing.assert_allclose(out, np.array(expected, np.float32), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    ("config", "message"), [(seasonal.Config(4, 5), "at least the 5"), (seasonal.Config(4, 0), "pass 1 or more")]
)
def test_settings_that_make_no_sense_are_refused(config: seasonal.Config, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        seasonal.init(64, config)
