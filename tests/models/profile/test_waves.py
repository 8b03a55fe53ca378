"""Swings of a device's use: a Haar matrix as oracle, known periods and bursts, gaps and constants."""

from typing import Any

import numpy as np
import pytest

from flyball_models._arrays import as_array
from flyball_models.profile import waves

N, W = 64, waves.DEFAULT.length
Floats = np.ndarray[Any, Any]


def looked(columns: list[Floats]) -> tuple[Floats, ...]:
    """Play the columns, one per device, through a window that has been round once; return what it shows."""
    x = np.full((len(columns[0]), N), np.nan, np.float32)
    x[:, : len(columns)] = np.stack(columns, axis=1)
    state = waves.init(N)
    for row in x:
        state = waves.step(state, row, np.ones(N, np.bool_))
    return tuple(np.asarray(value)[: len(columns)] for value in waves.summarize(state))


def haar_matrix(w: int) -> Floats:
    """The transform written out as products with its basis, finest scale first."""
    rows: list[Floats] = []
    width = 2
    while width <= w:
        for start in range(0, w, width):
            row = np.zeros(w)
            row[start : start + width // 2], row[start + width // 2 : start + width] = 1.0, -1.0
            rows.append(row / np.sqrt(width))
        width *= 2
    return np.stack([*rows, np.full(w, 1 / np.sqrt(w))])


def test_it_is_the_haar_transform_and_keeps_the_energy() -> None:
    x = np.random.default_rng(1).normal(size=(32, 3)).astype(np.float32)
    details, mean = waves.haar(as_array(x))
    found = np.concatenate([np.asarray(d) for d in [*details, mean]])
    np.testing.assert_allclose(found, haar_matrix(32) @ x, atol=1e-5)
    np.testing.assert_allclose((found**2).sum(axis=0), (x**2).sum(axis=0), rtol=1e-5)


def test_periods_bursts_noise_and_what_cannot_be_known() -> None:
    rng = np.random.default_rng(2)
    t = np.arange(W + 37)
    noise = 0.02 * rng.normal(size=len(t))
    steps = 0.5 + 0.3 * (t % 20 < 10) + noise  # a training step of 20 ticks
    slow = 0.5 + 0.4 * np.sin(2 * np.pi * t / 40) + noise
    random = 0.5 + 0.1 * rng.normal(size=len(t))
    bursts = np.where(rng.random(len(t)) < 0.08, 0.9, 0.05)
    gap = np.where(rng.random(len(t)) < 0.05, np.nan, slow)
    missing = np.where(t > len(t) - 40, np.nan, slow)
    level = np.where(t > 90, 0.9, 0.1) + noise  # one shift of the level is no period
    zeros = np.zeros(len(t))
    columns = [steps, slow, random, bursts, gap, missing, level, zeros]
    energy, scale, period, regular, burst = looked(columns)

    np.testing.assert_allclose(period[[0, 1, 4]], [20, 40, 40], atol=1)
    assert (regular[[0, 1, 4]] > 0.7).all()
    assert np.isnan(period[[2, 3, 5, 6, 7]]).all()
    assert np.isnan(energy[[5, 7]]).all()
    assert np.isnan(burst[[5, 7]]).all()
    np.testing.assert_allclose(energy[[0, 1, 2, 3, 4, 6]].sum(axis=1), 1.0, atol=1e-4)
    assert scale[1] in (8, 16)  # half a period is 20 ticks
    assert scale[2] == 1  # noise: each finer scale has twice the coefficients
    assert burst[3] > 1.5 * burst[2] > 3 * burst[1]


def test_too_short_a_window_is_refused() -> None:
    with pytest.raises(ValueError, match="pass 4 or more"):
        waves.init(N, waves.Config(scales=3))
