"""Record ratio: a slow oracle, causality, warm-up, hold-down, and faults it must see."""

from typing import Any

import numpy as np
import pytest
from bench.anomalies import record_ratio
from hypothesis import given, settings, strategies as st

N = 64
Floats = np.ndarray[Any, Any]
CONFIG = record_ratio.Config(bins=4, hold=7, warmup=6, decay=0.99)
"""That of the tests of all models: another one, or another number of series, is compiled anew."""


def scores_of(x: Floats, mask: Floats | None = None) -> tuple[Floats, Floats]:
    state = record_ratio.init(x.shape[1], CONFIG)
    scores: list[Floats] = []
    expected: list[Floats] = []
    for t, row in enumerate(x):
        here = np.ones(x.shape[1], np.bool_) if mask is None else mask[t]
        state, out = record_ratio.step(state, row, here, np.array(t // 3 % CONFIG.bins, np.int32), CONFIG)
        scores.append(np.asarray(out.score))
        expected.append(np.asarray(out.expected))
    return np.stack(scores), np.stack(expected)


class Slow:
    """The definition, one value at a time, in float64."""

    def __init__(self, config: record_ratio.Config) -> None:
        self.c = config
        self.n = 0
        self.records: list[list[float]] = [[0.0] * 3 for _ in range(4)]
        self.season = {b: [0.0, 0] for b in range(config.bins)}
        self.spread = [0.0, 0.0, 0.0]
        self.since, self.emitted = config.hold, 0.0
        self.slow = self.fast = self.previous = 0.0

    def update(self, mean: float, i: int, v: float, rate: float) -> float:
        e = v - mean
        if self.n >= self.c.warmup and self.spread[i] > 0:
            limit = self.c.clip * 1.2533 * self.spread[i]
            e = min(max(e, -limit), limit)
        if self.n == 0:
            return v
        self.spread[i] += max(0.01, 1 / self.n) * (abs(e) - self.spread[i])
        return mean + rate * e

    def score(self, v: float, b: int) -> float:
        mean, visits = self.season[b]
        slow_before = self.slow
        slow = self.update(self.slow, 0, v, max(self.c.level_rate, 1 / (self.n + 1)))
        fast = self.update(self.fast, 1, v, self.c.fast_rate)
        learned = self.update(mean if visits else v, 2, v, max(self.c.season_rate, 1 / (visits + 1)))
        residuals = [v - slow_before, v - self.previous, fast - slow_before, v - mean]
        if self.n == 0:
            residuals = [0.0] * 4
        elif visits < 2:
            residuals[3] = 0.0
        raw = 0.0
        for weight, e, kept in zip(self.c.weights, residuals, self.records, strict=True):
            floor = max(sum(kept) / 3, 1e-6 * abs(slow_before) + 1e-30)
            raw = max(raw, weight * abs(e) / floor)
            kept[:] = sorted([*(self.c.decay * m for m in kept), abs(e)], reverse=True)[:3]
        out = 0.0
        if self.n >= self.c.warmup and raw > 0 and (self.since >= self.c.hold or raw > self.emitted):
            out, self.since, self.emitted = 1 - 1 / (1 + raw), 0, raw
        else:
            self.since += 1
        self.slow, self.fast, self.previous, self.n = slow, fast, v, self.n + 1
        self.season[b] = [learned, visits + 1]
        return out


@given(st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=8)
def test_it_is_the_definition(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = (rng.normal(50, 5, (150, N)) + 20 * (rng.random((150, N)) < 0.03)).astype(np.float32)
    mask = rng.random((150, N)) < 0.9
    scores, expected = scores_of(x, mask)
    for i in range(3):
        slow = Slow(CONFIG)
        for t in range(len(x)):
            if slow.n:
                assert expected[t, i] == pytest.approx(slow.slow, rel=1e-4)
            else:
                assert np.isnan(expected[t, i])
            want = slow.score(float(x[t, i]), t // 3 % CONFIG.bins) if mask[t, i] else 0.0
            assert scores[t, i] == pytest.approx(want, abs=2e-3), (t, i)


@given(st.integers(0, 2**32 - 1), st.integers(1, 79))
@settings(deadline=None, max_examples=20)
def test_the_score_of_a_prefix_is_the_prefix_of_the_score(seed: int, cut: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.standard_cauchy((80, N)).astype(np.float32)
    other = x.copy()
    other[cut:] = rng.normal(1e6, 1, other[cut:].shape)
    np.testing.assert_array_equal(scores_of(x)[0][:cut], scores_of(other)[0][:cut])


@given(st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=20)
def test_scores_are_shares_silent_while_warming_up_and_without_a_value(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = (rng.standard_cauchy((60, N)) * 10.0 ** rng.integers(-20, 20, N)).astype(np.float32)
    mask = rng.random((60, N)) < 0.7
    scores, _ = scores_of(x, mask)
    assert ((scores >= 0) & (scores <= 1)).all()
    assert (scores[~mask] == 0).all()
    assert (scores[np.cumsum(mask, axis=0) - mask < CONFIG.warmup] == 0).all()
    assert (scores > 0).any()


@given(st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=10)
def test_within_the_hold_only_larger_scores_are_emitted(seed: int) -> None:
    x = np.random.default_rng(seed).normal(0, 1, (120, N)).astype(np.float32)
    scores, _ = scores_of(x)
    for row in scores.T:
        last, at = 0.0, -CONFIG.hold
        for t in np.flatnonzero(row).tolist():
            assert t - at > CONFIG.hold or row[t] > last
            last, at = row[t], t


@given(st.integers(0, 2**32 - 1), st.integers(-12, 12))
@settings(deadline=None, max_examples=10)
def test_the_unit_of_a_series_does_not_matter(seed: int, power: int) -> None:
    x = np.random.default_rng(seed).normal(3, 1, (80, N)).astype(np.float32)
    # A power of two scales floats exactly.
    np.testing.assert_array_equal(scores_of(x)[0], scores_of(x * np.float32(2.0**power))[0])


def test_a_constant_metric_that_moves_is_an_anomaly() -> None:
    x = np.full((60, N), 80.0, np.float32)
    x[50, 0] = 81.0
    scores, expected = scores_of(x)
    assert scores[50, 0] > 0.99
    assert (scores[:, 1:] == 0).all()
    assert expected[50, 0] == 80.0


def test_a_spike_scores_far_above_noise_and_does_not_move_the_expectation() -> None:
    rng = np.random.default_rng(4)
    x = rng.normal(100, 2, (600, N)).astype(np.float32)
    x[500, :8] = 200.0
    scores, expected = scores_of(x)
    assert (scores[500, :8] > 0.8).all()
    assert scores[500, :8].min() > scores[400:500].max()
    # Clipped at 6 sd of 2: one value moves the level by at most 12 / 500, not by 100 / 500.
    assert (np.abs(expected[501, :8] - expected[500, :8]) < 0.05).all()


def test_a_value_wrong_for_its_time_of_day_is_seen() -> None:
    rng = np.random.default_rng(9)
    t = np.arange(400)
    usual = np.where(t // 3 % 4 == 2, 100.0, 0.0)[:, None]
    x = (usual + rng.normal(0, 1, (400, N))).astype(np.float32)
    x[398] = 100.0  # bin 0, where 0 is usual; 100 is common at another time
    assert 398 // 3 % 4 == 0
    scores, _ = scores_of(x)
    assert (scores[398] > 0.9).all()


def test_no_bins_are_refused() -> None:
    with pytest.raises(ValueError, match="pass 1 or more"):
        record_ratio.init(16, record_ratio.Config(bins=0))
