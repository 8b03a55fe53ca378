"""Step times: slowdowns of a whole gang are found soon, and what gangs do all the time is none."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray

from flyball_models.anomaly import step_time
from flyball_models.anomaly.step_time import Detections, State

Floats = NDArray[np.float64]
LIMIT, MANY, BEFORE_S, AFTER_S = 4.8, 50, 1500, 300
NOISE = 0.01


def run(x: Floats, limit: float = LIMIT, period_s: float = 1.0) -> tuple[State, list[Detections | None]]:
    """What is found in each tick of the logarithms ``x`` [T, W]."""
    state, found = step_time.init(x.shape[1]), list[Detections | None]()
    for t, row in enumerate(x):
        state, now = step_time.step(state, np.exp(row), 1e9 + (t + 1) * period_s, period_s, limit)
        found.append(now)
    return state, found


def delays_s(found: list[Detections | None], since: int, period_s: float = 1.0, mine: slice = slice(MANY)) -> Floats:
    """Seconds from tick ``since`` on until each is loud, infinite where it is not; all were quiet before."""
    loud = np.array([np.zeros(MANY, bool) if now is None else now.alarm[mine] for now in found])
    assert not loud[:since].any()
    return np.where(loud.any(axis=0), (loud.argmax(axis=0) - since + 1) * period_s, np.inf)


def iid(random: np.random.Generator, t: int) -> Floats:
    return NOISE * random.standard_normal((t, MANY))


def heavy(random: np.random.Generator, t: int) -> Floats:
    return NOISE * random.standard_t(3, (t, MANY))


def with_checkpoints(random: np.random.Generator, t: int) -> Floats:
    """One step in ten minutes takes 20 times as long."""
    x = iid(random, t)
    for series, first in enumerate(random.integers(0, 600, MANY)):
        x[first::600, series] += 3.0
    return x


def drifting(random: np.random.Generator, t: int) -> Floats:
    """Up and down by 2 % within an hour."""
    return iid(random, t) + 0.02 * np.sin(2 * np.pi * (np.arange(t)[:, None] / 3600 + random.random(MANY)))


NOISES = (iid, heavy, with_checkpoints, drifting)
SLOWER = (0.10, 0.05)


@pytest.fixture(scope="module")
def slowed() -> tuple[State, list[Detections | None]]:
    """Gangs of every noise that become slower by either share, side by side as they do not see each other."""
    parts: list[Floats] = []
    for noise in NOISES:
        for slower in SLOWER:
            x = noise(np.random.default_rng(3), BEFORE_S + AFTER_S)
            x[BEFORE_S:] += np.log1p(slower)
            parts.append(x)
    return run(np.concatenate(parts, axis=1))


@pytest.mark.parametrize(("slower", "most_s", "share"), [(0.10, 60, 0.99), (0.05, 300, 0.90)])
@pytest.mark.parametrize("noise", NOISES)
def test_a_slowdown_of_all_is_found_in_time(
    slowed: tuple[State, list[Detections | None]],
    noise: Callable[[np.random.Generator, int], Floats],
    slower: float,
    most_s: float,
    share: float,
) -> None:
    first = MANY * (len(SLOWER) * NOISES.index(noise) + SLOWER.index(slower))
    mine, (state, found) = slice(first, first + MANY), slowed
    assert (delays_s(found, BEFORE_S, mine=mine) <= most_s).mean() >= share
    assert np.median(state.onset_s[mine]) == pytest.approx(1e9 + BEFORE_S, abs=30.0)
    last = [now for now in found if now is not None][-1]
    assert np.median(last.slower[mine]) == pytest.approx(slower, abs=0.02)
    assert np.median(last.expected_s[mine]) == pytest.approx(1.0, abs=0.02)


def test_a_level_from_a_gangs_low_is_unlearned_and_what_goes_away_again_is_no_slowdown() -> None:
    """It begins 3 % faster than usual, comes back over ten minutes, and once is slower for half a minute."""
    t = np.arange(3600)[:, None]
    x = iid(np.random.default_rng(9), 3600) - 0.03 * np.clip((660 - t) / 600, 0.0, 1.0)
    x += 0.028 * np.where(t < 3000, 0.0, np.exp(-np.maximum(t - 3030, 0) / 60.0))
    assert (delays_s(run(x, limit=8.0)[1], len(x)) == np.inf).all()


def test_long_steps_and_long_ticks() -> None:
    """Each step takes 20 s and is told over and over; or a tick takes 30 s."""
    random = np.random.default_rng(5)
    x = np.repeat(NOISE * random.standard_normal((150, MANY)), 20, axis=0) + np.log(20.0)
    x[2200:] += np.log1p(0.1)
    assert (delays_s(run(x)[1], 2200) <= 300).mean() >= 0.9
    x = iid(random, 300)
    x[250:] += np.log1p(0.1)
    assert (delays_s(run(x, period_s=30.0)[1], 250, 30.0) <= 600).mean() >= 0.9


def test_who_becomes_faster_is_not_blamed_for_going_back_and_a_new_level_is_accepted() -> None:
    x = iid(np.random.default_rng(7), 6600)
    x[1000:] += np.log(0.7)
    x[1500:] += np.log1p(0.15)
    state, found = run(x)
    assert np.isfinite(delays_s(found, 1500)).all()
    assert np.allclose(state.level, np.log(0.7 * 1.15), atol=0.02)  # after an hour
    last = [now for now in found if now is not None][-1]
    assert not last.alarm.any()
    ended = np.array([now.ended for now in found if now is not None])
    assert (ended.max(axis=0) >= LIMIT).all()


def test_gaps_and_what_is_no_time_change_nothing() -> None:
    x = iid(np.random.default_rng(9), 900)
    state, _ = run(x)
    for silent in (np.nan, -np.inf):  # nothing, or a step of 0 s
        later = state
        for t in range(50):
            later, found = step_time.step(later, np.exp(np.full(MANY, silent)), 2e9 + t, 1.0, LIMIT)
            assert found is None or not found.alarm.any()
        np.testing.assert_array_equal(later.level, state.level)
    grown = step_time.resize(state, MANY + 3)
    np.testing.assert_array_equal(grown.level[:MANY], state.level)
    assert np.isnan(grown.level[MANY:]).all()


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 2**32 - 1), st.floats(0.1, 100.0))
def test_series_are_independent_and_stay_finite(seed: int, period_s: float) -> None:
    random = np.random.default_rng(seed)
    x = random.normal(0.0, 5.0, (80, 4))
    x[random.random(x.shape) < 0.2] = np.nan
    state, _ = run(x, period_s=period_s)
    alone, _ = run(x[:, :1], period_s=period_s)
    for both, one in zip(state, alone, strict=True):
        np.testing.assert_array_equal(both[..., :1], one)
    assert np.isfinite([state.up, state.down, state.peak, state.jump, state.worst, state.volatility]).all()
