"""One linear model for all series: least squares as oracle, a newcomer, level shifts, gaps, zeros, and whole sums."""

from typing import Any

import numpy as np
import pytest
from tests.models.forecast.stepping import common

from flyball_models._arrays import as_array
from flyball_models._pool import mean_over_series, products_over_series
from flyball_models.forecast import pooled

N = 64
CONFIG = pooled.Config((0,), 0, (1, 3), 4, forgetting=1.0, ridge=1e-3, median=1e6)
ROBUST = CONFIG._replace(forgetting=0.995, ridge=10.0, median=0.3)
Floats = np.ndarray[Any, Any]


def played(y: Floats, config: pooled.Config) -> tuple[pooled.State, Floats]:
    """Play y [T, S], NaN where missing, with the long mean as only forecast given; return forecasts [T, N, H]."""
    state, rows = pooled.init(N, config), list[Floats]()
    level, seen = np.zeros(N), np.zeros(N)
    for values in y:
        wide = np.full(N, np.nan, np.float32)
        wide[: y.shape[1]] = values
        known = np.isfinite(wide)
        seen += known
        level += np.where(known, (np.nan_to_num(wide) - level) / np.clip(seen, 1, 50), 0.0)
        given = as_array(np.log1p(level).astype(np.float32)[None])
        state, out = common(state, wide, known, (given,), config)
        rows.append(np.asarray(out))
    return state, np.stack(rows)


def reverting(ticks: int, series: int = N, seed: int = 5) -> Floats:
    """Loads that return to a mean of their own, most of the way in a tick."""
    rng = np.random.default_rng(seed)
    mean, z = rng.uniform(3, 7, series), np.zeros((ticks, series))
    z[0] = mean
    for t in range(1, ticks):
        z[t] = mean + 0.3 * (z[t - 1] - mean) + 0.1 * rng.normal(size=series)
    return np.exp(z).astype(np.float32)


def test_without_weights_it_is_least_squares_over_all_series() -> None:
    y = reverting(60)
    state, _ = played(y[:-1], CONFIG)
    before = [np.array(leaf) for leaf in (state.made, state.base, state.units, state.gram, state.moment)]
    made, base, units, gram, moment = before
    slot = (59 - 3) % 4
    x = np.concatenate([made[slot, :, 1], np.ones((1, N))])
    target = (np.log1p(y[-1]) - base[slot]) / (units[slot] * np.sqrt(3))
    state, _ = played(y, CONFIG)
    # Whole numbers of sixteenths: the rest is rounding.
    np.testing.assert_allclose(state.gram[1, ..., 0], gram[1, ..., 0] + x @ x.T, atol=0.5, rtol=1e-3)
    np.testing.assert_allclose(state.moment[1, :, 0], moment[1, :, 0] + x @ np.clip(target, -5, 5), atol=0.5, rtol=1e-3)
    root = np.linalg.cholesky(np.asarray(state.gram)[1, ..., 0].astype(float))
    fit, *_ = np.linalg.lstsq(root.T, np.linalg.solve(root, np.asarray(state.moment)[1, :, 0].astype(float)))
    np.testing.assert_allclose(state.common[1, :, 0], fit, atol=0.02)


def test_a_newcomer_is_forecast_by_what_the_others_taught() -> None:
    y = np.full((300, N), np.nan, np.float32)
    y[:, :40] = reverting(300, 40)
    late = reverting(300, 24, seed=8)
    y[200:, 40:] = late[200:]
    _, out = played(y, ROBUST)
    _, alone = played(np.where(np.arange(N) < 40, np.nan, y), ROBUST)
    truth, window = late[203:243], slice(200, 240)
    error = np.abs(np.log(out[window, 40:, 2]) - np.log(truth)).mean()
    taught = np.abs(np.log(alone[window, 40:, 2]) - np.log(truth)).mean()
    flat = np.abs(np.log(late[200:240]) - np.log(truth)).mean()
    assert error < 0.95 * taught
    assert error < 0.9 * flat


def test_level_shifts_gaps_and_zeros_are_bounded_and_soon_over() -> None:
    y = reverting(300)
    y[150:, 0] *= 50  # shift
    y[100:140, 1] = np.nan  # gap
    y[:, 2] = 0.0
    y[120:180, 3] = 0.0  # outage that is told as zero
    y[:, 4] = np.where(np.arange(300) % 7 == 0, 40.0, 0.0)
    state, out = played(y, ROBUST)
    assert np.isfinite(out[1:, :5]).all()
    assert (np.abs(np.log(out[153:, 0] / y[153:, 0, None])) < 1.5).all()
    np.testing.assert_allclose(out[100:140, 1].max(axis=0), out[100:140, 1].min(axis=0), rtol=0.05)
    np.testing.assert_allclose(out[:, 2], 0.0, atol=1e-3)
    assert (out[122:180, 3] <= 15.0).all()
    assert (np.log1p(out[..., 4, :]) <= np.log1p(40.0) + np.log(16.0)).all()
    assert np.isfinite(np.asarray(state.common)).all()


def test_sums_do_not_depend_on_slots_or_padding() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(3, 5000)).astype(np.float32)
    whole = np.asarray(products_over_series(as_array(x)))
    np.testing.assert_allclose(whole, x @ x.T, rtol=0.01, atol=5)
    np.testing.assert_array_equal(whole, products_over_series(as_array(np.pad(x[:, ::-1], ((0, 0), (40, 100))))))
    known = x[0] > 0
    mean = mean_over_series(as_array(x), as_array(np.broadcast_to(known, x.shape)), as_array(np.zeros((3, 1))))
    np.testing.assert_allclose(mean[:, 0], x[:, known].mean(axis=1), atol=1e-3)
    none = mean_over_series(as_array(x), as_array(np.zeros(x.shape, np.bool_)), as_array(np.full((3, 1), 7.0)))
    np.testing.assert_array_equal(none, np.full((3, 1), 7.0))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (pooled.Config(judged=(3, 1)), "ascending"),
        (pooled.Config(horizons=0), "pass 1 or more"),
        (pooled.Config(forgetting=0.0), "above 0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(config: pooled.Config, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pooled.init(N, config)
