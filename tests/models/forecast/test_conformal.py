"""Conformal bands: coverage on hard series, an independent oracle, and what bands must always be."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from tests.models.forecast.stepping import BANDS, banded, step

from flyball_models.forecast import conformal, damped

CONFIG = BANDS
LEVELS = CONFIG.levels
N = 64
KINDS = ("heavy tails", "small counts", "random walk", "change of regime")
Floats = np.ndarray[Any, Any]


def bands_of(
    y: Floats, forecasts: Floats, config: conformal.Config = CONFIG, mask: Floats | None = None
) -> tuple[Floats, Floats, Floats]:
    """Return quantiles [T, N, H, Q], and the last coverage and resolved counts."""
    state = conformal.init(y.shape[1], config)
    rows: list[Floats] = []
    out = None
    for t in range(len(y)):
        here = np.ones(y.shape[1], np.bool_) if mask is None else mask[t]
        state, out = banded(state, y[t], here, forecasts[t], config)
        rows.append(np.asarray(out.quantiles))
    assert out is not None
    return np.stack(rows), np.asarray(out.coverage), np.asarray(out.resolved)


def smoothed(y: Floats, horizons: int) -> Floats:
    config = damped.Config(horizons=horizons)
    state = damped.init(y.shape[1], config)
    rows: list[Floats] = []
    for row in y:
        state, out = step(damped, state, row, np.ones(y.shape[1], np.bool_), config)
        rows.append(np.asarray(out))
    return np.stack(rows)


def hard_series(kind: str, ticks: int = 2500, n: int = 16) -> Floats:
    rng = np.random.default_rng(11)
    t = np.arange(ticks)[:, None]
    daily = 100 * np.exp(0.5 * np.sin(2 * np.pi * t / 288 + rng.uniform(0, 6, n)))
    match kind:
        case "heavy tails":
            y = daily * np.exp(0.2 * rng.standard_t(3, (ticks, n)))
        case "small counts":
            y = rng.poisson(daily / 20).astype(float)
        case "random walk":
            y = np.exp(4 + np.cumsum(0.05 * rng.normal(size=(ticks, n)), axis=0))
        case _:  # the level doubles and the noise grows fivefold half-way
            late = t > ticks // 2
            y = daily * np.exp(np.where(late, 0.5, 0.1) * rng.normal(size=(ticks, n))) * np.where(late, 2, 1)
    return y.astype(np.float32)


@pytest.fixture(scope="module")
def hard() -> tuple[Floats, Floats, Floats, Floats]:
    """Values of 16 series of each kind, side by side as they do not see each other, and what `bands_of` returns."""
    y = np.concatenate([hard_series(kind) for kind in KINDS], axis=1)
    return y, *bands_of(y, smoothed(y, 6))


@pytest.mark.parametrize("kind", KINDS)
def test_coverage_is_near_the_level_on_every_series(kind: str, hard: tuple[Floats, Floats, Floats, Floats]) -> None:
    mine = slice(16 * KINDS.index(kind), 16 * (KINDS.index(kind) + 1))
    y, quantiles, coverage, resolved = hard[0][:, mine], hard[1][:, mine], hard[2][mine], hard[3][mine]
    lead = CONFIG.lead
    below = y[lead:, :, None] <= quantiles[:-lead, :, lead - 1]
    # Ties with a quantile at 0 count as below, so small counts may pass the lowest level.
    np.testing.assert_allclose(below.mean(axis=0)[:, 1:], np.tile(LEVELS[1:], (16, 1)), atol=0.03)
    np.testing.assert_allclose(coverage.mean(axis=0)[1:], LEVELS[1:], atol=0.06)
    assert (resolved == len(y) - lead).all()


def test_it_is_the_tracking_rule_written_out() -> None:
    """A slow oracle in float64 for one series with gaps: dictionaries of open forecasts, one loop per level."""
    rng = np.random.default_rng(3)
    ticks, n, h, lead = 120, N, CONFIG.horizons, CONFIG.lead
    y = rng.gamma(2, 30, (ticks, n)).astype(np.float32)
    mask = rng.random((ticks, n)) < 0.8
    forecasts = rng.gamma(4, 15, (ticks, n, h)).astype(np.float32)
    quantiles, coverage, resolved = bands_of(y, forecasts, mask=mask)

    z = [math.copysign(-math.log(2 * min(a, 1 - a)), a - 0.5) for a in LEVELS]
    eta = [CONFIG.eta * math.sqrt(0.5 / min(a, 1 - a)) for a in LEVELS]
    offset = [[z[q] for q in range(len(LEVELS))] for _ in range(h)]
    scale, seen = [CONFIG.prior] * h, [0] * h
    hits: list[list[bool]] = []
    opened: dict[tuple[int, int], float] = {}
    issued: dict[int, Floats] = {}
    last, peak = 0.0, 0.0
    for t in range(ticks):
        if mask[t, 0]:
            last = float(y[t, 0])
            peak = max(math.log1p(last), peak * (1 - CONFIG.peak_rate))
            for k in range(h):
                point = opened.pop((t, k), None)
                if point is None:
                    continue
                r = math.log((last + 1) / (point + 1))
                for q, level in enumerate(LEVELS):
                    offset[k][q] += eta[q] * (level - (r <= offset[k][q] * scale[k]))
                scale[k] += max(CONFIG.scale_rate, 1 / (seen[k] + 5)) * (abs(r) - scale[k])
                seen[k] += 1
            if t - lead in issued:
                hits.append([last <= float(v) for v in issued[t - lead]])
        for k in range(h):
            point = float(forecasts[t, 0, k])
            raw = sorted((point + 1) * math.exp(offset[k][q] * scale[k]) - 1 for q in range(len(LEVELS)))
            cap = max(CONFIG.growth * (1 + max(point, last)), math.exp(peak)) - 1
            expected = np.clip(raw, 0, cap)
            np.testing.assert_allclose(quantiles[t, 0, k], expected, rtol=2e-3, atol=1e-3)
            if mask[t, 0]:
                opened[t + k + 1, k] = point
        if mask[t, 0]:
            issued[t] = quantiles[t, 0, lead - 1]
    assert resolved[0] == seen[lead - 1] == len(hits)
    share = np.zeros(len(LEVELS))
    for i, hit in enumerate(hits):
        share += max(CONFIG.coverage_rate, 1 / (i + 1)) * (np.array(hit) - share)
    np.testing.assert_allclose(coverage[0], share, atol=1e-4)


def test_the_first_bands_are_wide_and_say_that_nothing_is_known() -> None:
    y = np.full((1, N), 100.0, np.float32)
    quantiles, coverage, resolved = bands_of(y, np.full((1, N, 6), 100.0, np.float32))
    low, middle, high, higher = quantiles[0, 0, 0]
    assert low < 60 < middle < 140 < high < higher
    assert middle == pytest.approx(100, rel=1e-5)
    assert np.isnan(coverage).all()
    assert (resolved == 0).all()


def test_no_forecast_has_no_bands_and_is_not_judged() -> None:
    y = np.full((10, N), 100.0, np.float32)
    forecasts = np.full((10, N, 6), 100.0, np.float32)
    forecasts[:, 3] = np.nan
    quantiles, coverage, resolved = bands_of(y, forecasts)
    assert np.isnan(quantiles[:, 3]).all()
    assert np.isnan(coverage[3]).all()
    assert resolved.tolist() == [0 if i == 3 else 10 - CONFIG.lead for i in range(N)]


def test_a_series_that_calms_down_narrows() -> None:
    y = np.full((400, N), 100.0, np.float32)
    quantiles, _, _ = bands_of(y, np.full((400, N, 6), 100.0, np.float32))
    assert (quantiles[-1, :, :, -1] / quantiles[-1, :, :, 0] < 1.01).all()


floats = st.floats(0, 2.0**40, width=32)


@given(st.lists(st.tuples(floats, floats), min_size=1, max_size=15))
@settings(deadline=None, max_examples=60)
def test_bands_are_ordered_not_negative_and_capped(pairs: list[tuple[float, float]]) -> None:
    y = np.array([[a] * N for a, _ in pairs], np.float32)
    forecasts = np.array([[[b] * 6] * N for _, b in pairs], np.float32)
    quantiles, _, _ = bands_of(y, forecasts)
    assert (quantiles >= 0).all()
    assert (np.diff(quantiles, axis=-1) >= 0).all()
    most = CONFIG.growth * (1 + np.maximum(y[:, :, None], forecasts)) - 1
    most = np.maximum(most, np.maximum.accumulate(y)[:, :, None])  # nor is more refused than was seen
    assert (quantiles <= most[..., None] * 1.001 + 1e-3).all()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (conformal.Config(horizons=4, lead=5), "pass a horizon in 1..4"),
        (conformal.Config(levels=(0.9, 0.5)), "ascending"),
        (conformal.Config(levels=()), "ascending"),
        (conformal.Config(levels=(0.5, 1.0)), "between 0 and 1"),
    ],
)
def test_settings_that_make_no_sense_are_refused(config: conformal.Config, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        conformal.init(16, config)


def test_forecasts_of_another_horizon_are_refused() -> None:
    with pytest.raises(ValueError, match=r"forecast has shape \(16, 2\), not \(16, 12\)"):
        banded(conformal.init(16), np.ones(16, np.float32), np.ones(16, np.bool_), np.ones((16, 2), np.float32))
