"""The profile: an independent loop with gaps, and what it is on a series that repeats."""

from typing import Any

import numpy as np
import pytest
from tests.models.forecast.stepping import step

from flyball_models.forecast import profile

N = 64
Floats = np.ndarray[Any, Any]
CONFIG = profile.Config(season=8, groups=((1,), (1, 2)), rate=0.4, horizons=5)


def played(y: Floats, config: profile.Config) -> Floats:
    """Return the last forecasts [N, H, G] of series that are all alike."""
    state, out = profile.init(N, config), np.empty(0)
    for value in y:
        state, made = step(profile, state, np.full(N, value, np.float32), np.ones(N, np.bool_), config)
        out = np.asarray(made)
    return out


def test_it_is_the_rule_written_out() -> None:
    rng = np.random.default_rng(9)
    ticks = 60
    y = rng.gamma(2, 30, (ticks, N)).astype(np.float32)
    mask = rng.random((ticks, N)) < 0.7
    z = np.where(mask[:, 0], np.log1p(y[:, 0].astype(float)), np.nan)

    def known_mean(values: list[float]) -> float:
        there = [v for v in values if np.isfinite(v)]
        return float(np.mean(there)) if there else float("nan")

    def shape(target: int, days: tuple[int, ...]) -> float:
        # The profile of a tick is made when it comes into reach, from what was known then: all that it needs.
        if target < CONFIG.horizons:
            return float("nan")
        at = [[target - d * CONFIG.season + i for i in (-1, 0, 1)] for d in days]
        return known_mean([known_mean([z[i] for i in of if i >= 0]) for of in at])

    state = profile.init(N, CONFIG)
    distance, last = [np.nan, np.nan], np.nan
    for t in range(ticks):
        state, out = step(profile, state, y[t], mask[t], CONFIG)
        for g, days in enumerate(CONFIG.groups):
            off = z[t] - shape(t, days)
            if np.isfinite(off):
                distance[g] = off if not np.isfinite(distance[g]) else distance[g] + CONFIG.rate * (off - distance[g])
        last = z[t] if np.isfinite(z[t]) else last
        for g, days in enumerate(CONFIG.groups):
            for h in range(1, CONFIG.horizons + 1):
                change = shape(t + h, days) + distance[g] - last
                change = np.clip(change, -np.log(CONFIG.growth), np.log(CONFIG.growth))
                np.testing.assert_allclose(out[0, h - 1, g], np.expm1(last + change), rtol=1e-3)


def test_a_level_shift_moves_the_profile_along() -> None:
    config = profile.Config(season=24, groups=((1,),), rate=0.5, horizons=4)
    ticks = np.arange(24 * 5)
    y = 100 * np.exp(0.5 * np.sin(2 * np.pi * ticks / 24)) * np.where(ticks < 96, 1, 3)
    np.testing.assert_allclose(played(y[:-8], config)[0, :, 0], y[-8:-4], rtol=0.03)


def test_before_the_first_day_is_over_there_is_no_forecast() -> None:
    assert np.isnan(played(np.ones(CONFIG.season - 1), CONFIG)).all()
    assert np.isfinite(played(np.ones(2 * CONFIG.season), CONFIG)).all()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (profile.Config(horizons=0), "1 or more"),
        (profile.Config(season=6, horizons=5), "pass more than 6"),
        (profile.Config(groups=()), "at least one"),
        (profile.Config(groups=((0,),)), "days from 1"),
    ],
)
def test_settings_that_make_no_sense_are_refused(config: profile.Config, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        profile.init(N, config)
