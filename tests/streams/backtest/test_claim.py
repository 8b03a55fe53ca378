"""How a claim is made: fronts, interpolation, what was not reached, and intervals that cover."""

import math

import numpy as np
import pytest
from bench.scaling.rows import geometric
from hypothesis import given, strategies as st

from flyball_streams.backtest.policies.groups import POLICY_GROUPS
from flyball_streams.backtest.report import claim
from flyball_streams.backtest.report.claim import cost_at, front
from flyball_streams.backtest.sweep import BILLED, COLUMNS, LATE, REQUESTS, Configuration, Result

HPA, KPA = POLICY_GROUPS["hpa"], POLICY_GROUPS["kpa"]
LINE = Configuration("x", 300.0, 5)
points = st.lists(st.tuples(st.floats(1, 100), st.floats(0, 1)), min_size=1, max_size=20)


@given(points)
def test_no_setting_beats_one_on_the_front(found: list[tuple[float, float]]) -> None:
    cost, attained = np.array(found).T
    kept = front(cost, attained)
    assert (np.diff(attained[kept]) > 0).all()
    assert (np.diff(cost[kept]) >= 0).all()
    for i in range(len(cost)):
        assert any(cost[k] <= cost[i] and attained[k] >= attained[i] for k in kept)


def test_cost_is_interpolated_and_what_is_not_reached_is_not_invented() -> None:
    cost, attained = np.array([10.0, 20.0, 30.0, 25.0]), np.array([0.9, 0.98, 1.0, 0.5])
    assert cost_at(cost, attained, 0.99).value == pytest.approx(25.0)
    assert cost_at(cost, attained, 0.9) == claim.Cost(10.0, False)
    assert cost_at(cost, attained, 0.8) == claim.Cost(10.0, True)
    assert math.isnan(cost_at(cost[:2], attained[:2], 0.99).value)


def result_of(factor: float, late: float, seed: int = 0, days: int = 14) -> Result:
    """Two settings, one always in time; five seeds; days differ, the same for everybody."""
    rng = np.random.default_rng(seed)
    day = rng.lognormal(0, 0.3, (5, days))
    block_sums = np.zeros((2, 5, days, COLUMNS))
    block_sums[..., REQUESTS] = 1000
    block_sums[0, ..., BILLED], block_sums[1, ..., BILLED] = 3600 * day, 3600 * day * 2
    block_sums[..., BILLED] *= factor
    block_sums[0, ..., LATE] = late
    return Result(LINE, HPA if factor == 1 else KPA, ("a", "b"), block_sums)


def test_a_known_ratio_comes_back_with_an_interval_around_it() -> None:
    weights = claim.draws(5, 7, 200)
    base, ours = (claim.costs(result_of(f, 20), 0.99, weights) for f in (1.0, 0.8))
    ratio, each = claim.ratio(ours, base)
    assert ratio.value == pytest.approx(0.8)
    assert each == pytest.approx(0.8)  # paired: the days cancel
    assert geometric([(ratio, each)] * 3).value == pytest.approx(0.8)
    assert ratio.percent() == "-20.0 % [-20.0, -20.0]"


def test_a_side_that_never_gets_there_is_not_compared() -> None:
    weights = claim.draws(5, 7, 50)
    base = claim.costs(result_of(1.0, 20), 0.99, weights)
    bad = result_of(0.8, 20)
    bad.block_sums[1, ..., LATE] = 500
    ratio, each = claim.ratio(claim.costs(bad, 0.99, weights), base)
    assert math.isnan(ratio.value)
    assert ratio.percent() == "not reached"
    assert math.isnan(geometric([(ratio, each)]).value)


def test_settings_are_tuned_on_the_first_half_alone() -> None:
    result = result_of(1.0, 5)
    result.block_sums[0, :, 7:, LATE] = 900  # the cheap one fails in the second half
    found = claim.frozen(result, 0.99)
    assert (found.name, found.kept) == ("a", True)
    assert found.attainment == pytest.approx(0.1)
    nothing = claim.frozen(result_of(1.0, 5), 1.1)
    assert not nothing.kept


def test_draws_repeat_whole_days_and_seeds() -> None:
    weights = claim.draws(5, 7, 300)
    assert (weights.sum(axis=(1, 2)) == 35).all()


def test_gap_is_reported_only_where_the_oracle_is_cheaper() -> None:
    assert claim.gap_closed(90, 100, 80) == pytest.approx(0.5)
    assert math.isnan(claim.gap_closed(90, 100, 101))
