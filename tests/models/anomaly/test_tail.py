"""Tails: clean peaks pass the limit as often as was asked for, from cold on, and alarms do not move it far."""

import numpy as np
import pytest

from flyball_models.anomaly import tail

DAY_S = 86_400.0


def fed(peaks: np.ndarray, per_day: float, rate: float, config: tail.Config = tail.DEFAULT) -> tuple[tail.State, int]:
    """State after `peaks`, `per_day` of them in each day of one series, and how many passed the limit of the time."""
    state, passed = tail.init(2, rate, config), 0
    exposure = np.array([DAY_S / per_day, 0.0])
    for peak in peaks:
        passed += int(peak > state.limit[0])
        state = tail.step(state, np.zeros(1, np.int64), np.array([peak]), exposure, 60.0, rate, 1, config)
    return state, passed


@pytest.mark.parametrize("every", [20.0, 200.0])
def test_peaks_pass_as_often_as_requested_for(every: float) -> None:
    """200 peaks a day, of which one in a number of days may pass; an exponential tail, and one of shape 0.2."""
    share, rate = np.random.default_rng(5).uniform(size=40_000), 1.0 / (every * DAY_S)
    peaks = np.stack([-np.log(share), (share**-0.2 - 1.0) / 0.2])
    state, passed = tail.init(4, rate), np.zeros(2, np.int64)  # series with peers are the first half of the strata
    day = DAY_S * np.array([1.0, 1.0, 0.0, 0.0])
    ends = np.r_[5:2000:5, 2000:40_000:20]  # five of each tail end in a step, and 20 once the tail is known
    for both in np.split(peaks, ends, axis=1):
        n = both.shape[1]
        passed += (both > state.limit[:2, None]).sum(axis=1)
        stratum = np.repeat(np.arange(2), n)
        state = tail.step(state, stratum, both.ravel(), day * n / 200.0, 60.0, rate, 2 * n)  # apart: as many events
    requested = share.size / 200.0 / every
    assert (requested / 4 <= passed + 0.5).all()
    assert (passed + 0.5 <= 3 * requested + 3).all()


def test_what_nobody_knows_yet_has_a_wider_limit_without_peers_and_a_rarer_budget_a_wider_one() -> None:
    often, seldom = (tail.init(2, rate / DAY_S).limit for rate in (1e-2, 1e-4))
    assert (often < seldom).all()
    assert often[0] < often[1]
    assert seldom[0] > 3.0


def test_the_limit_comes_down_while_nothing_happens() -> None:
    rate = 1e-4 / DAY_S
    state = tail.init(2, rate)
    before = state.limit.copy()
    nobody = np.zeros(0, np.int64)
    for _ in range(100):
        state = tail.step(state, nobody, np.zeros(0), np.full(2, 10 * DAY_S), 60.0, rate, 0)
    assert (state.limit < before).all()


RATE = 1e-3 / DAY_S


@pytest.fixture(scope="module")
def calm() -> tail.State:
    """What ten days of 200 peaks leave, of which one in a thousand days may pass."""
    return fed(np.random.default_rng(3).exponential(size=2000), 200.0, RATE)[0]


def test_one_huge_peak_counts_as_one_at_the_limit(calm: tail.State) -> None:
    nobody, exposure = np.zeros(1, np.int64), np.array([DAY_S / 200.0, 0.0])
    huge, at_limit = (
        tail.step(calm, nobody, np.array([peak]), exposure, 60.0, RATE, 1) for peak in (1e6, calm.limit[0])
    )
    assert huge.limit[0] == at_limit.limit[0] < 2 * calm.limit[0]


def test_the_rate_at_the_limit_is_the_one_requested_for(calm: tail.State) -> None:
    found = tail.rates(calm, np.array([0, 1]), calm.limit)
    np.testing.assert_allclose(found, RATE, rtol=1e-6)


def test_strata_that_move_together_may_each_be_reported_more_often() -> None:
    rate = 1e-3 / DAY_S
    apart, together = tail.init(2, rate), tail.init(2, rate)
    for peak in np.random.default_rng(3).exponential(size=300) + 0.5:
        given = np.arange(2), np.full(2, peak), np.full(2, 400.0), 60.0, rate
        apart, together = tail.step(apart, *given, 2), tail.step(together, *given, 1)
    assert (together.limit < apart.limit).all()


def test_a_limit_by_few_peaks_allows_for_their_uncertain_shape() -> None:
    """With a prior that is too light the likeliest shape alone gives a limit that one peak in 90 passes, not 1e-4."""
    random, shape, config = np.random.default_rng(11), 0.2, tail.Config(least=0.0, prior_shape=(0.0, 0.0))
    rate, shares = 1e-4 / DAY_S, list[float]()
    for _ in range(200):
        peaks = (random.uniform(size=30) ** -shape - 1.0) / shape
        nobody, exposure = np.zeros(30, np.int64), np.array([30 * DAY_S, 0.0])
        state = tail.step(tail.init(2, rate, config), nobody, np.minimum(peaks, 20.0), exposure, 60.0, rate, 30, config)
        shares.append(float((1.0 + shape * state.limit[0]) ** (-1.0 / shape)))
    assert np.mean(shares) < 2e-3


def test_the_threshold_falls_after_two_periods_of_smaller_peaks_and_few_peaks_are_kept() -> None:
    random, rate, day = np.random.default_rng(7), 1e-3 / DAY_S, np.full(2, DAY_S)
    state, seldom = (
        tail.init(2, rate),
        tail.step(tail.init(2, rate), np.zeros(1, np.int64), np.array([2.0]), np.full(2, DAY_S), 60.0, rate, 1),
    )
    thresholds = [1.0]
    for number in range(60):
        peaks = 1.0 + random.exponential(3.0 if number < 14 else 0.3, 40)
        state = tail.step(state, np.zeros(40, np.int64), peaks, day, DAY_S, rate, 40)
        seldom = tail.step(seldom, np.zeros(0, np.int64), np.zeros(0), day, DAY_S, rate, 0)
        thresholds.append(float(state.threshold[0]))
    assert max(thresholds) > 4.0
    assert thresholds[-1] < 2.5
    assert seldom.peaks[:, 0].max() == 2.0
    assert seldom.exposure_s[:, 0].sum() == 61 * DAY_S


def test_a_limit_that_came_down_to_the_threshold_rises_with_what_passes_it() -> None:
    rate, hour = 1e-9, np.full(2, 3600.0)
    state = tail.step(tail.init(2, rate), np.zeros(0, np.int64), np.zeros(0), np.full(2, 1e9), 60.0, rate, 0)
    assert state.limit.tolist() == [1.0, 1.0]
    passed = 0
    for _ in range(100):
        passed += int(state.limit[0] < 1.5)
        state = tail.step(state, np.zeros(1, np.int64), np.array([1.5]), hour, 3600.0, rate, 1)
    assert passed < 20


def test_many_equal_peaks_do_not_hold_the_threshold_up_for_good() -> None:
    random, rate, day = np.random.default_rng(7), 1e-3 / DAY_S, np.full(2, DAY_S)
    state = tail.step(tail.init(2, rate), np.zeros(200, np.int64), np.full(200, 1e6), day, DAY_S, rate, 1)
    held = float(state.threshold[0])
    for _ in range(60):
        state = tail.step(state, np.zeros(40, np.int64), 1.0 + random.exponential(0.3, 40), day, DAY_S, rate, 40)
    assert float(state.threshold[0]) < 2.0 < held


CALM = tail.Config(least=0.5, prior_n=0.06, prior_s=250 * DAY_S, prior_excess=(0.4, 0.4), shape_n=8.0)
TWO_PRIORS = CALM._replace(busy_share=0.001)


def test_a_busy_fleet_is_known_as_one_by_its_first_peaks_and_a_calm_one_as_before() -> None:
    """Five peaks a day, of which one in a thousand days may pass: the first of all passes, and with one prior more."""
    rate, passed = 1e-3 / DAY_S, dict[tail.Config, int]()
    for config in (CALM, TWO_PRIORS):
        fleets = [0.5 + np.random.default_rng(seed).exponential(0.5, size=150) for seed in range(8)]
        passed[config] = sum(fed(peaks, 5.0, rate, config)[1] for peaks in fleets)
    assert passed[TWO_PRIORS] <= 2 * len(fleets) < passed[CALM]
    nothing, waited = np.zeros(0, np.int64), np.full(2, 1000 * DAY_S)
    calm, both = (
        tail.step(tail.init(2, rate, config), nothing, np.zeros(0), waited, 60.0, rate, 0, config).limit
        for config in (CALM, TWO_PRIORS)
    )
    assert both == pytest.approx(calm, rel=0.01)
