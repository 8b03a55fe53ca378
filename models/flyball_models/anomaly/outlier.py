"""Outliers: how rarely a series without peers goes so far, judged by its own largest residuals.

A value arrives once a window, which is minutes long. Residuals e of a series with value v:

    level     v - slow          slow: running mean that replaces `slow_rate` of itself per window
    shift     fast - slow       fast: the same with each of `fast_rates`, v included
    season    v - s[b]          s: running mean of each time of day b, used after two visits

Sizes above the smallest u of the `KEPT` largest so far, x_1 >= .. >= x_k = u out of n windows, follow a Pareto
distribution with the shape of Hill's estimator (Hill 1975, "A simple general approach to inference about the tail of a
distribution"), here with a prior that weighs as much as `prior_n` sizes:

    shape = (sum log(x_j / u) + prior_n prior_shape) / (k - 1 + prior_n)
    P(|e| > x) = (k / n) (x / u)^(-1 / shape)

The surprise of a window is -log10 of the least P of all. There are shifts of several rates because it is not known
beforehand how long the next one lasts. The method needs no scale and no floor; while little was seen, the same surprise
takes a larger residual than later. Once `forget` windows were seen every second size is dropped and n halved, so that
old extremes fade. Only the past and the present are used.

Shapes: N series, F fast rates, B times of day. The method is ours; only the estimator is Hill's.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

KEPT = 16
_LEAST_KNOWN = 4
"""A residual counts only once this many sizes above 0 are known."""
Floats = NDArray[np.float32]


class Config(NamedTuple):
    """Rates and counts are of windows; `most` bounds log10 of (x / u)^(1 / shape)."""

    bins: int = 96
    slow_rate: float = 0.002
    fast_rates: tuple[float, ...] = (0.05, 0.1, 0.2, 0.4)
    season_rate: float = 0.05
    warm: int = 50
    prior_n: float = 4.0
    prior_shape: float = 0.5
    most: float = 6.0
    forget: float = 16_384.0


DEFAULT = Config()


class State(NamedTuple):
    """`seen` windows, of which `n` are not forgotten, and `slow`, all [N]; `fast` [F, N].

    `largest` [KEPT, 2 + F, N] has the sizes of level, shifts and season in this order. `season` [B, N] are means and
    `visits` [B, N] their numbers, which end at 255.
    """

    seen: Floats
    n: Floats
    slow: Floats
    fast: Floats
    largest: Floats
    season: Floats
    visits: NDArray[np.uint8]


class Found(NamedTuple):
    """`surprise` [N] is -log10 of how often a window goes so far, 0 while nothing is known; `expected` [N].

    `expected` is the value by the model of the most surprising residual, NaN while nothing is known.
    """

    surprise: Floats
    expected: Floats


def init(n: int, config: Config = DEFAULT) -> State:
    """Return the state of `n` series that have had no value."""
    seen, windows, slow = (np.zeros(n, np.float32) for _ in range(3))
    season = np.zeros((config.bins, n), np.float32)
    rates = len(config.fast_rates)
    fast, largest = np.zeros((rates, n), np.float32), np.zeros((KEPT, 2 + rates, n), np.float32)
    return State(seen, windows, slow, fast, largest, season, np.zeros((config.bins, n), np.uint8))


def step(
    state: State, x: NDArray[np.float64], day_share: NDArray[np.float64], config: Config = DEFAULT
) -> tuple[State, Found]:
    """Score and fit the windows `x` [N], NaN where a series had none; `day_share` [N] in 0..1 is the time of day."""
    known = np.isfinite(x)
    now: Floats = np.where(known, x, 0.0).astype(np.float32)
    begins, each = known & (state.seen == 0), np.arange(len(now))
    slow, fast = (np.where(begins, now, mean) for mean in (state.slow, state.fast))
    fast = fast + np.array(config.fast_rates, np.float32)[:, None] * (now - fast)
    at = np.minimum((day_share * config.bins).astype(np.int64), config.bins - 1)
    usual, visits = state.season[at, each], state.visits[at, each]
    seasonal = visits >= 2
    residuals = [(now - slow)[None], fast - slow, np.where(seasonal, now - usual, 0.0)[None]]
    sizes: Floats = np.abs(np.concatenate(residuals)).astype(np.float32)
    n = state.n + known
    surprise = _surprise(state.largest, sizes, n, config)
    speaks = known & (n >= config.warm)
    kept = np.where(known, _inserted(state.largest, sizes), state.largest)
    old = known & (n >= config.forget)
    if old.any():
        half = np.zeros_like(kept)
        half[: KEPT // 2] = kept[::2]
        kept, n = np.where(old, half, kept), np.where(old, n / 2, n)
    season, counted = state.season.copy(), state.visits.copy()
    pace = np.maximum(np.float32(config.season_rate), 1.0 / (visits.astype(np.float32) + 1.0))
    season[at, each] = np.where(known, usual + pace * (now - usual), usual)
    counted[at, each] = visits + (known & (visits < 255))
    slower = slow + np.maximum(np.float32(config.slow_rate), 1.0 / (state.seen + 1.0)) * (now - slow)
    best = surprise.argmax(axis=0)
    scores = np.where(speaks, surprise[best, each], 0.0).astype(np.float32)
    expected = np.where(known & ~begins, np.where((best == len(sizes) - 1) & seasonal, usual, slow), np.nan)
    updated = State(
        seen=state.seen + known,
        n=n.astype(np.float32),
        slow=np.where(known, slower, state.slow).astype(np.float32),
        fast=np.where(known, fast, state.fast).astype(np.float32),
        largest=kept,
        season=season,
        visits=counted,
    )
    return updated, Found(scores, expected.astype(np.float32))


def _surprise(largest: Floats, sizes: Floats, n: Floats, config: Config) -> Floats:
    """-log10 P of each residual [2 + F, N], at least 0."""
    k = (largest > 0.0).sum(axis=0)
    floor = np.take_along_axis(largest, np.maximum(k - 1, 0)[None], axis=0)[0]
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.where(largest > 0.0, np.log(largest / floor), 0.0).sum(axis=0)
        shape = (logs + config.prior_n * config.prior_shape) / (np.maximum(k - 1, 0) + config.prior_n)
        beyond = np.minimum(np.log10(sizes / floor) / shape, config.most)
        found = np.log10(n / k) + beyond
    return np.where((k >= _LEAST_KNOWN) & (sizes > floor), np.maximum(found, 0.0), 0.0).astype(np.float32)


def _inserted(largest: Floats, sizes: Floats) -> Floats:
    """The largest of the old and the new sizes, in descending order."""
    above = np.concatenate([np.full_like(sizes[None], np.inf), largest[:-1]])
    kept: Floats = np.maximum(largest, np.minimum(above, sizes))
    return kept
