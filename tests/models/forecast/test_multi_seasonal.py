"""Level, day and week: a slow loop as oracle, and weeks, outliers, level shifts, gaps and zeros."""

import math
from typing import Any

import numpy as np
import pytest
from tests.models.forecast.stepping import step

from flyball_models.forecast import multi_seasonal

N, SEASON, WEEKS, H = 64, 6, 3, 4
CONFIG = multi_seasonal.Config(SEASON, WEEKS, H)
Floats = np.ndarray[Any, Any]


def played(y: Floats) -> Floats:
    """Return the forecasts [T, S, H] of y [T, S], NaN where missing."""
    state, rows = multi_seasonal.init(N, CONFIG), list[Floats]()
    for values in y:
        wide = np.full(N, np.nan, np.float32)
        wide[: y.shape[1]] = values
        state, out = step(multi_seasonal, state, wide, np.isfinite(wide), CONFIG)
        rows.append(np.asarray(out)[: y.shape[1]])
    return np.stack(rows)


def slow(y: Floats) -> Floats:
    """The docstring in float64 for one series."""
    c, long, rows = CONFIG, SEASON * WEEKS, list[list[float]]()
    day, week, visits = [0.0] * SEASON, [0.0] * long, [0] * SEASON
    level = scale = rest = last = 0.0
    seen = 0
    for t, value in enumerate(y):
        p, q = t % SEASON, t % long
        if not math.isnan(value):
            z = math.log1p(value)
            level = z if seen == 0 else level
            off = z - level - day[p] - week[q]
            e = off if seen < SEASON else min(max(off, -c.clip * scale), c.clip * scale)
            scale += max(c.scale_rate, 1 / (seen + 1)) * (abs(off) - scale)
            gain, delta = max(c.alpha, 1 / (seen + 1)), max(c.delta, 1 / (visits[p] + 1))
            level, day[p] = level + gain * e, day[p] + delta * (1 - gain) * e
            week[q] += (c.omega if visits[p] >= WEEKS else 0.0) * (1 - delta) * (1 - gain) * e
            visits[p], seen, last = visits[p] + 1, seen + 1, z
            rest = z - level - day[p] - week[q]
        ahead = [level + day[(t + h) % SEASON] + week[(t + h) % long] + c.phi**h * rest for h in range(1, H + 1)]
        rows.append([math.expm1(last + max(min(a - last, math.log(16)), -math.log(16))) for a in ahead])
    return np.maximum(rows, 0.0)


def test_it_is_the_recursion_written_out() -> None:
    rng = np.random.default_rng(4)
    y = np.exp(4 + 0.5 * np.sin(np.arange(80)) + 0.3 * rng.normal(size=80))
    y[rng.random(80) < 0.2] = np.nan
    y[0] = 30.0
    np.testing.assert_allclose(played(y[:, None])[:, 0], slow(y), rtol=2e-3)


def test_weeks_outliers_shifts_gaps_and_zeros() -> None:
    t = np.arange(60 * SEASON)
    weekly = 100 * np.exp(0.5 * np.sin(2 * np.pi * t / SEASON) + 0.5 * (t // SEASON % WEEKS == 0))
    y = np.stack([weekly] * 5, axis=1)
    spike, shift, gap = 50 * SEASON, 40 * SEASON, slice(30 * SEASON, 33 * SEASON)
    y[spike, 1] *= 30  # one outlier
    y[shift:, 2] *= 20  # a level shift
    y[gap, 3] = np.nan
    y[:, 4] = 0.0
    out = played(y)
    off = np.abs(np.log1p(out[:-1, :, 0]) - np.log1p(y[1:]))
    assert off[-2 * SEASON :, 0].mean() < 0.02
    assert off[spike + SEASON : spike + 3 * SEASON, 1].mean() < 0.5
    assert off[shift + 8 * SEASON :, 2].mean() < 0.3
    assert np.nanmean(off[gap.stop + 1 : gap.stop + SEASON, 3]) < 0.1
    np.testing.assert_allclose(out[:, 4], 0.0, atol=1e-5)


@pytest.mark.parametrize("config", [multi_seasonal.Config(horizons=0), multi_seasonal.Config(seasons=1)])
def test_settings_that_make_no_sense_are_refused(config: multi_seasonal.Config) -> None:
    with pytest.raises(ValueError, match="pass"):
        multi_seasonal.init(N, config)
