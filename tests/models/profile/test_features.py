"""Profile features: known mixes, missing inputs, idle time."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from flyball_models.profile import features

N = 16
NAN = float("nan")


def profile(rows: list[tuple[float, float, float, float, float]], config: features.Config = features.DEFAULT) -> Any:
    """Play (utilization, sm, dram, memory, power) on every device; return the last features of the first."""
    state = features.init(N, config)
    for row in rows:
        inputs = features.Inputs(*(np.full(N, value, np.float32) for value in row))
        state = features.step(state, inputs, np.ones(N, np.bool_), config)
    return features.Features(*(value[0] for value in features.summarize(state)))


def test_a_steady_device_is_described_at_once() -> None:
    out = profile([(0.8, 0.6, 0.2, 0.5, 400.0)])
    assert out.duty_cycle == pytest.approx(1)
    assert out.utilization == pytest.approx(0.8)
    assert out.memory_boundedness == pytest.approx(0.25)
    assert out.memory_used == pytest.approx(0.5)
    assert out.power_w == pytest.approx(400)
    assert out.idle_ticks == 0


def test_means_forget_exponentially() -> None:
    rng = np.random.default_rng(1)
    use = rng.random(200)
    out = profile([(float(u), NAN, NAN, NAN, NAN) for u in use])
    weight = (1 - features.DEFAULT.rate) ** np.arange(200)[::-1]
    assert out.utilization == pytest.approx(np.average(use, weights=weight), rel=1e-4)
    assert out.duty_cycle == pytest.approx(np.average(use > 0.05, weights=weight), rel=1e-4)


def test_what_was_never_known_is_nan_and_not_zero() -> None:
    out = profile([(NAN, NAN, NAN, NAN, NAN)] * 3)
    assert all(np.isnan(value) for value in out[:-1])
    assert out.idle_ticks == 0


def test_boundedness_needs_both_sides_and_takes_utilization_for_sm_activity() -> None:
    assert profile([(0.6, NAN, 0.2, NAN, NAN)]).memory_boundedness == pytest.approx(0.25)
    assert np.isnan(profile([(0.6, 0.6, NAN, NAN, NAN)]).memory_boundedness)
    assert np.isnan(profile([(0.0, 0.0, 0.0, NAN, NAN)]).memory_boundedness)


def test_idle_ticks_run_until_work_and_skip_the_unknown() -> None:
    idle, busy, unknown = (0.04, NAN, NAN, NAN, NAN), (0.06, NAN, NAN, NAN, NAN), (NAN, NAN, NAN, NAN, NAN)
    assert profile([busy, idle, idle, unknown, idle]).idle_ticks == 3
    assert profile([idle, idle, busy]).idle_ticks == 0


share = st.one_of(st.just(NAN), st.floats(0, 1, width=32))


@given(st.lists(st.tuples(share, share, share, share, share), min_size=1, max_size=8))
@settings(deadline=None, max_examples=60)
def test_shares_stay_shares(rows: list[tuple[float, float, float, float, float]]) -> None:
    out = profile(rows)
    for value in (out.duty_cycle, out.utilization, out.memory_boundedness, out.memory_used):
        assert np.isnan(value) or -1e-6 <= value <= 1 + 1e-6
