"""Recursive least squares: a slow loop as oracle, the batch solution, and the guards."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from tests.models.forecast.stepping import RLS, step

from flyball_models._arrays import as_array, full
from flyball_models.forecast import rls

N = 64
Floats = np.ndarray[Any, Any]


def played(y: Floats, config: rls.Config, mask: Floats | None = None) -> tuple[rls.State, Floats]:
    """Return the last state and the forecasts [T, H] of the first series."""
    state = rls.init(N, config)
    rows: list[Floats] = []
    for t, value in enumerate(y):
        here = np.full(N, True if mask is None else mask[t])
        state, out = step(rls, state, np.full(N, value, np.float32), here, config)
        rows.append(np.asarray(out[0]))
    return state, np.stack(rows)


def slow(y: Floats, mask: Floats, config: rls.Config) -> list[list[float]]:
    """The docstring in float64: values in a dictionary by tick, one matrix per judged horizon."""
    z: dict[int, float] = {}
    last, scale, seen = 0.0, 0.0, 0
    w = [np.zeros(11) for _ in config.judged]
    p = [np.eye(11) * config.prior for _ in config.judged]
    rows: list[list[float]] = []

    def mean(ticks: list[int]) -> float:
        known = [z[t] for t in ticks if t in z]
        return sum(known) / len(known) if known else math.nan

    def features(origin: int, level: float, unit: float, h: int) -> Floats:
        first, oldest = config.season, config.season * config.seasons
        days = range(config.season, oldest + 1, config.season)
        raw = [
            mean([origin + h - first + j for j in (-1, 0, 1) if first - h - j >= 0]),
            mean([origin - first + j for j in (-1, 0, 1)]),
            mean([origin + h - d for d in days]),
            mean([origin - d for d in days]),
            mean([origin + h - oldest + j for j in (-1, 0, 1)]),
            mean([origin - oldest + j for j in (-1, 0, 1)]),
            mean([origin - j for j in range(6)]),
            *(mean([origin - j]) for j in (1, 2, 5)),
        ]
        x = [0.0 if math.isnan(v) else min(max((v - level) / unit, -10), 10) for v in raw]
        return np.array([*x, 1.0])

    for t, value in enumerate(y):
        if mask[t]:
            z[t] = math.log1p(value)
            if seen:
                scale += max(config.scale_rate, 1 / (seen + 1)) * (abs(z[t] - last) - scale)
            last = z[t]
        unit = max(scale, 1e-3)
        for i, h in enumerate(config.judged):
            if mask[t] and t - h in z:
                x = features(t - h, z[t - h], unit, h)
                k = p[i] @ x / (config.forgetting + x @ p[i] @ x)
                e = np.clip((z[t] - z[t - h]) / unit - w[i] @ x, -config.clip, config.clip)
                w[i] = w[i] + k * e
                p[i] = p[i] - np.outer(k, x @ p[i])
                if np.trace(p[i]) < config.trace * 11 * config.forgetting:
                    p[i] = p[i] / config.forgetting
        seen += int(mask[t])
        knots = [unit * float(w[i] @ features(t, last, unit, h)) for i, h in enumerate(config.judged)]
        change = np.interp(range(1, config.horizons + 1), (0, *config.judged), (0.0, *knots))
        rows.append([max(math.expm1(last + c), 0.0) if seen else math.nan for c in change])
    return rows


@pytest.mark.parametrize("share", [1.0, 0.8])
def test_it_is_the_recursion_written_out(share: float) -> None:
    rng = np.random.default_rng(4)
    t = np.arange(60)
    y = np.exp(4 + 0.5 * np.sin(2 * np.pi * t / 6) + 0.2 * rng.normal(size=60)).astype(np.float32)
    mask = rng.random(60) < share
    _, out = played(y, RLS, mask)
    np.testing.assert_allclose(out, np.array(slow(y, mask, RLS)), rtol=5e-3)


def test_without_forgetting_and_clipping_it_is_ridge_regression() -> None:
    """x regressed on its own past: the recursion ends where solving the normal equations at once does."""
    rng = np.random.default_rng(6)
    x = rng.normal(size=(80, 11))
    target = x @ rng.normal(size=11) + 0.1 * rng.normal(size=80)
    config = rls.Config(season=6, seasons=1, judged=(1,), forgetting=1.0, prior=2.0, clip=1e6, trace=1e6)
    *_, weights, covariance = rls.init(N, config)
    known, unit = full((1, N), 1.0) > 0, full(N, 1.0)
    for row, value in zip(x.astype(np.float32), target.astype(np.float32), strict=True):
        wide = as_array(np.broadcast_to(row[:, None, None], (11, 1, N)))
        seen = rls.TickFeatures(wide, full((1, N), value), known, wide, unit)
        weights, covariance = rls.update(weights, covariance, seen, config)
    solved = np.linalg.solve(x.T @ x + np.eye(11) / 2.0, x.T @ target)
    np.testing.assert_allclose(weights[:, 0, 0], solved, rtol=1e-3, atol=1e-4)


def test_it_fits_a_season_that_the_last_value_cannot_know() -> None:
    t = np.arange(40 * RLS.season)
    y = 100 * np.exp(0.8 * np.sin(2 * np.pi * t / RLS.season))
    _, out = played(y, RLS)
    last = np.abs(y[103:] - y[100:-3]).mean()
    assert np.abs(y[103:] - out[100:-3, 2]).mean() < 0.2 * last


def test_a_level_shift_and_a_gap_are_no_error_for_long() -> None:
    rng = np.random.default_rng(9)
    y = 100 * np.exp(0.1 * rng.normal(size=300))
    y[150:] *= 50
    mask = np.ones(300, np.bool_)
    mask[200:230] = False
    state, out = played(y, RLS, mask)
    assert (out[160:] > 1000).all()
    assert (out[160:] < 50_000).all()
    assert np.isfinite(np.asarray(state.weights)).all()


def test_a_quiet_series_does_not_wind_up() -> None:
    y = np.full(300, 40.0)
    state, out = played(y, RLS)
    trace = np.einsum("ffjn->jn", np.asarray(state.covariance))
    assert RLS.prior * 11 / RLS.forgetting ** len(y) > 10 * RLS.trace * 11  # as it would be without the cap
    assert (trace <= RLS.trace * 11 * 1.001).all()
    np.testing.assert_allclose(out, np.full((300, RLS.horizons), 40.0), rtol=1e-4)


@given(st.lists(st.one_of(st.none(), st.floats(-10, 2.0**60, width=32)), min_size=1, max_size=30))
@settings(deadline=None, max_examples=40)
def test_forecasts_are_bounded_and_there_from_the_first_value_on(values: list[float | None]) -> None:
    y = np.array([np.nan if v is None else v for v in values], np.float32)
    state, out = played(y, RLS)
    newest = np.nan
    for value, row in zip(y, out, strict=True):
        newest = max(float(value), 0.0) if np.isfinite(value) else newest
        assert np.isnan(row).all() == np.isnan(newest)
        if np.isfinite(newest):
            assert (row >= 0).all()
            assert (np.log1p(row) <= np.log1p(newest) + np.log(RLS.growth) + 1e-3).all()
    assert (np.einsum("ffjn->fjn", np.asarray(state.covariance)) > 0).all()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (rls.Config(judged=()), "ascending ones"),
        (rls.Config(judged=(6, 1)), "ascending ones"),
        (rls.Config(judged=(0, 1)), "ascending ones"),
        (rls.Config(horizons=0), "pass 1 or more"),
        (rls.Config(season=6), "longer than 12"),
        (rls.Config(forgetting=0.0), "at most 1"),
    ],
)
def test_settings_that_make_no_sense_are_refused(config: rls.Config, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rls.init(N, config)
