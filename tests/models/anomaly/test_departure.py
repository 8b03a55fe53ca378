"""Departures: what one device does alone and for long is said, what it always did or all do is not."""

from typing import Any

import numpy as np

from flyball_models.anomaly import departure, tail

RATE = 1e-3 / 86_400.0  # one clean series in 1,000 days
N, FLOOR = 64, np.array([1.0], np.float32)
Floats = np.ndarray[Any, Any]
GANG = np.where(np.arange(N) < 8, 0, -1).astype(np.int32)


def published(x: Floats, group: Floats = GANG, period_s: float = 1.0, **config: Any) -> Floats:
    """What is reported, [T, N], of `x` [T, N] of one metric."""
    state, known, found = departure.init(N, 1), tail.init(2, RATE), list[Floats]()
    for row in x.astype(np.float32):
        mask = np.isfinite(row)
        state, known, out = departure.step(
            state, known, row[:, None], mask, group, FLOOR, period_s, RATE, departure.Config(**config)
        )
        found.append(np.asarray(out.ratio)[0])
    return np.array(found)


def noise(ticks: int, seed: int = 0) -> Floats:
    return 50.0 + np.random.default_rng(seed).normal(0, 1, (ticks, N))


def test_a_device_that_departs_from_its_peers_is_published_once_and_again_later() -> None:
    x = noise(1000)
    x[500:, 3] += 30.0
    scores = published(x, accept_s=1e9)
    assert np.flatnonzero(scores[:, :8].any(axis=0)).tolist() == [3]
    times = np.flatnonzero(scores[:, 3])
    assert 502 <= times[0] <= 520
    assert len(times) == 2
    assert times[1] - times[0] == 300


def test_a_change_of_the_whole_group_is_no_departure() -> None:
    x = noise(1000)
    x[500:, :8] -= 45.0
    assert not published(x)[:, :8].any()


def test_a_spike_is_no_departure() -> None:
    x = noise(1000)
    x[500, 3] += 100.0
    assert not published(x)[:, :8].any()


def test_what_a_peer_did_before_is_nothing_new() -> None:
    x = noise(1500)
    x[100:160, 1] -= 45.0  # while the group learns
    x[1000:1060, 3] -= 45.0
    assert not published(x)[:, :8].any()


def test_a_device_without_peers_is_silent_until_its_own_history_is_long() -> None:
    x = noise(900)
    x[500:, 20] += 60.0
    assert not published(x, alone_s=600.0).any()
    x = noise(900)
    x[700:, 20] += 60.0
    assert published(x, alone_s=600.0)[:, 20].any()


def test_a_departure_that_lasts_is_accepted_and_is_not_fitted_before() -> None:
    x = noise(1500)
    x[500:, 3] += 30.0
    scores = published(x, accept_s=400.0, again_s=100.0)[:, 3]
    assert np.flatnonzero(scores).max() < 500 + 420
    x[800:, 3] -= 30.0
    assert not published(x, accept_s=1e9, again_s=100.0)[820:, 3].any()


def test_seconds_count_and_not_ticks() -> None:
    x = noise(120)
    x[60:, 3] += 30.0
    scores = published(x, period_s=10.0)
    assert 61 <= np.flatnonzero(scores[:, 3])[0] <= 63


def test_values_that_are_missing_or_infinite_change_nothing() -> None:
    x = noise(600)
    x[400:, 3] += 30.0
    holes = x.copy()
    holes[::7, 40:] = np.nan
    holes[::5, 50] = np.inf
    np.testing.assert_array_equal(published(x)[:, :8], published(holes)[:, :8])
