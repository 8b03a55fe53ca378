"""Decaying histograms against exact weighted percentiles; what the recommenders promise; slices of a GPU."""

from typing import Any

import numpy as np
import pytest
from bench.common import vpa
from hypothesis import given, settings, strategies as st

from flyball_models import grow
from flyball_models.rightsizing import cost, histogram, mig, usage
from flyball_models.rightsizing.histogram import Grid

GRID = Grid(0.01, 1.05, 1_000.0)
HALF_S = 3_600.0
DAY_S = 86_400.0
START_S = 1.7e9
values = st.floats(0.02, 900.0)
samples = st.lists(st.tuples(values, st.floats(0.1, 10.0), st.floats(0, 20 * HALF_S)), min_size=1, max_size=30)
Floats = np.ndarray[Any, Any]


def filled(found: list[tuple[float, float, float]], start_s: float = START_S) -> histogram.State:
    state = histogram.init(2, GRID)
    for x, weight, at_s in sorted(found, key=lambda sample: sample[2]):
        state = histogram.add(state, np.array([x]), weight, np.array([1]), start_s + at_s, GRID, HALF_S)
    return state


def now_of(found: list[tuple[float, float, float]]) -> float:
    return START_S + max(at_s for _, _, at_s in found)


@settings(max_examples=60, deadline=None)
@given(samples, st.floats(0.05, 1.0))
def test_percentile_is_the_exact_one_or_a_bucket_above(found: list[tuple[float, float, float]], p: float) -> None:
    now_s = now_of(found)
    weights = histogram.weights_at(filled(found), np.array([0, 1]), now_s, HALF_S)
    got = histogram.percentile(weights, p, GRID)
    x = np.array(sorted((x, w * 2.0 ** ((START_S + at - now_s) / HALF_S)) for x, w, at in found))
    total = x[:, 1].cumsum()
    low, high = (x[(total >= p * (1 + slack) * total[-1] - 1e-12).argmax(), 0] for slack in (-1e-5, 1e-5))
    assert np.isnan(got[0])
    assert low <= got[1] * (1 + 1e-9)
    high = high if p * (1 + 1e-5) <= 1 else x[-1, 0]
    assert got[1] <= high * GRID.ratio + GRID.first


@settings(max_examples=30, deadline=None)
@given(samples, st.integers(0, 40))
def test_weights_halve_each_half_life_and_never_overflow(found: list[tuple[float, float, float]], years: int) -> None:
    state, now_s = filled(found), now_of(found)
    exact = sum(w * 2.0 ** ((START_S + at - now_s) / HALF_S) for _, w, at in found)
    assert histogram.weights_at(state, np.array([1]), now_s, HALF_S).sum() == pytest.approx(exact, rel=1e-5)
    assert histogram.weights_at(state, np.array([1]), now_s + HALF_S, HALF_S).sum() == pytest.approx(
        exact / 2, rel=1e-5
    )
    later_s = now_s + years * 365 * DAY_S
    state = histogram.add(state, np.array([1.0]), 1.0, np.array([0]), later_s, GRID, HALF_S)
    assert np.isfinite(state.weights).all()
    kept = histogram.weights_at(state, np.array([1, 0]), later_s, HALF_S).sum(axis=0)
    assert kept[1] == pytest.approx(1.0, rel=1e-5)
    assert kept[0] == pytest.approx(exact if years == 0 else 0.0, rel=1e-5)


def test_resizing_keeps_what_is_there_and_refuses_to_shrink() -> None:
    config = usage.Config(GRID, DAY_S, DAY_S)
    state = usage.step(usage.init(2, config), np.array([1.0, 2.0]), np.ones(2, bool), START_S, config)
    grown = grow(state, 5, lambda n: usage.init(n, config))
    np.testing.assert_array_equal(grown.peak, [1.0, 2.0, np.nan, np.nan, np.nan])
    assert usage.weights(grown, np.arange(5), START_S, config).sum(axis=0).tolist() == [1, 1, 0, 0, 0]
    with pytest.raises(ValueError, match="2 slots cannot hold the 5"):
        grow(grown, 2, lambda n: usage.init(n, config))
    with pytest.raises(ValueError, match="ratio > 1"):
        histogram.init(1, Grid(1.0, 0.9, 2.0))


def test_a_window_counts_once_by_its_peak_and_while_it_is_open() -> None:
    config = usage.Config(GRID, 1e9, DAY_S)
    state = usage.init(1, config)
    for hour, x in enumerate([1.0, 7.0, 2.0, np.nan, -1.0]):
        state = usage.step(state, np.array([x]), np.ones(1, bool), DAY_S * 100 + hour * 3600, config)
    weights = usage.weights(state, np.zeros(1, np.int64), DAY_S * 100 + 18_000, config)
    assert weights.sum() == pytest.approx(1.0, rel=1e-3)
    assert histogram.percentile(weights, 0.5, GRID)[0] == pytest.approx(7.0, rel=0.05)
    state = usage.step(state, np.array([1.0]), np.ones(1, bool), DAY_S * 101, config)
    weights = usage.weights(state, np.zeros(1, np.int64), DAY_S * 101, config)
    assert weights.sum() == pytest.approx(2.0, rel=1e-3)


def test_vpa_recommends_percentiles_with_margin_and_is_less_sure_when_young() -> None:
    weights = np.zeros((GRID.size, 1))
    weights[GRID.find(np.linspace(0.1, 10.0, 1000)), 0] += 1.0
    weights = np.bincount(GRID.find(np.linspace(0.01, 10.0, 1000)), minlength=GRID.size)[:, None].astype(float)
    old = vpa.recommend(weights, np.array([8 * DAY_S]), GRID)
    young = vpa.recommend(weights, np.array([DAY_S / 4]), GRID)
    assert old.target[0] == pytest.approx(9.0 * 1.15, rel=0.05)
    assert old.lower[0] == pytest.approx(5.0 * 1.15, rel=0.05)
    assert old.upper[0] == pytest.approx(9.5 * 1.15 * (1 + 1 / 8), rel=0.05)
    assert young.upper[0] == pytest.approx(9.5 * 1.15 * 5, rel=0.05)
    assert young.lower[0] < old.lower[0]
    assert cost.after_oom(np.array([1e6, 1e10])).tolist() == [1e6 + 100 * 2.0**20, 1.2e10]


def test_cost_asks_for_more_as_stakes_and_uncertainty_rise() -> None:
    rng = np.random.default_rng(1)

    def weights_of(x: Floats) -> Floats:
        return np.bincount(GRID.find(x), minlength=GRID.size)[:, None].astype(float)

    wide, few = weights_of(rng.lognormal(0.0, 0.3, 500)), weights_of(rng.lognormal(0.0, 0.3, 5))
    for recommend in (cost.killing, cost.slowing):
        requested = [float(recommend(wide, GRID, cost.Settings(stakes))[0]) for stakes in (2.0, 10.0, 100.0, 10_000.0)]
        assert requested == sorted(requested)
        assert requested[0] < requested[-1]
        assert np.isnan(recommend(np.zeros((GRID.size, 1)), GRID)[0])
    top = GRID.ends[np.flatnonzero(few[:, 0])[-1]]
    assert cost.killing(few, GRID)[0] > top  # five windows do not show the largest there will be
    steady = weights_of(np.full(500, 1.0))
    assert cost.killing(steady, GRID)[0] <= 1.0 * GRID.ratio**3
    # Without anything unseen the least cost is at the quantile of the stakes, the newsvendor's.
    sold = cost.slowing(wide, GRID, cost.Settings(20.0, unseen=0.0))
    assert sold[0] == pytest.approx(histogram.percentile(wide, 0.95, GRID)[0], rel=0.051)


@pytest.mark.parametrize(
    ("model", "gib", "share", "used_gib", "name"),
    [
        ("NVIDIA H100 80GB HBM3", 80, 0.1, 8, "1g.10gb"),
        ("NVIDIA H100 80GB HBM3", 79.6, 0.1, 12, "1g.20gb"),
        ("NVIDIA H100 80GB HBM3", 80, 0.2, 12, "2g.20gb"),
        ("NVIDIA H100 80GB HBM3", 80, 0.5, 30, "4g.40gb"),
        ("NVIDIA H100 80GB HBM3", 80, 0.9, 100, "7g.80gb"),
        ("NVIDIA A100-SXM4-40GB", 40, 0.1, 4, "1g.5gb"),
        ("NVIDIA H200", 141, 0.4, 60, "3g.71gb"),
        ("NVIDIA B200", 179, 0.1, 30, "1g.45gb"),
    ],
)
def test_the_smallest_slice_holds_share_and_memory(
    model: str, gib: float, share: float, used_gib: float, name: str
) -> None:
    found = mig.smallest(model, gib * 2**30, share, used_gib * 2**30)
    assert found is not None
    assert found.name == name


def test_what_cannot_be_divided_has_no_slices() -> None:
    assert mig.profiles("NVIDIA L40S", 48 * 2**30) == ()
    assert mig.profiles("NVIDIA H100 80GB HBM3", 24 * 2**30) == ()
    assert mig.smallest("", 0.0, 0.5, 1.0) is None
