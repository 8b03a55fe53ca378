"""Last value: the value itself, and averages of several paces."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from tests.models.forecast.stepping import step

from flyball_models.forecast import last

ONES = np.ones(64, np.bool_)


@given(st.lists(st.one_of(st.none(), st.floats(0, 2.0**60, width=32, allow_subnormal=False)), min_size=1, max_size=12))
@settings(deadline=None, max_examples=40)
def test_it_is_the_newest_known_value(values: list[float | None]) -> None:
    config = last.Config((1.0,), 3)
    state, out = last.init(64, config), None
    for value in values:
        y = np.full(64, np.nan if value is None else value, np.float32)
        state, out = step(last, state, y, ONES, config)
    known = [value for value in values if value is not None]
    assert out is not None
    expected = np.full((64, 3, 1), known[-1] if known else np.nan, np.float32)
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-6)


def test_averages_are_the_mean_of_few_values_and_then_the_recursion() -> None:
    config = last.Config((0.4, 0.05), 2)
    values = np.random.default_rng(2).gamma(2, 10, 30)
    state, out, levels = last.init(64, config), None, np.zeros(2)
    for t, value in enumerate(values):
        levels += np.maximum([0.4, 0.05], 1 / (t + 1)) * (value - levels)
        state, out = step(last, state, np.full(64, value, np.float32), ONES, config)
    assert out is not None
    np.testing.assert_allclose(out, np.tile(levels, (64, 2, 1)), rtol=1e-5)


@pytest.mark.parametrize(
    ("config", "message"), [(last.Config((0.0,)), "above 0"), (last.Config((1.0,), 0), "pass 1 or more")]
)
def test_settings_that_make_no_sense_are_refused(config: last.Config, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        last.init(64, config)
