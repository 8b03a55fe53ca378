"""Rates of large peaks of clean series: the tail of their distribution, pooled over all series of a stratum.

Peaks over a threshold t follow a generalised Pareto distribution (Pickands 1975). Of n peaks in an exposure of E
series-seconds, with excesses y in descending order y_0 .. y_(n-1) over t, probability-weighted moments (Hosking and
Wallis 1987) give its shape and scale without a search:

    a0 = mean(y)    a1 = mean(j / (n - 1) * y_j)    shape = 2 - a0 / (a0 - 2 a1)    scale = a0 (1 - shape)

so that peaks above v come at the rate (n / E) (1 + shape (v - t) / scale)^(-1 / shape) per series-second. Each of n /
E, a0 and shape starts from a prior with the weight of some observations, which data outweigh: a stratum without data
has a wide tail. All counts halve once in `forget_s`.

Strata overlap: one cause changes power and clock of a device. Peaks of one device within `event_s` are one event; peaks
and events are counted, and the allowed rate of a stratum is multiplied by their ratio.

Shapes: K strata, R peaks kept of each, descending, 0 where there are fewer.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Config(NamedTuple):
    """What is kept, the prior, and the decay.

    The prior equals `prior_n` peaks over `least` in `prior_s` series-seconds; the mean excess `prior_excess` weighs as
    much as `excess_n` peaks, the shape `prior_shape` as much as `shape_n`. Excess and shape have one value for the
    first half of the strata, series with peers, and one for the second, series without.
    """

    kept: int = 64
    least: float = 0.5
    prior_n: float = 1.0
    prior_s: float = 86_400.0
    prior_excess: tuple[float, float] = (0.3, 1.0)
    excess_n: float = 1.0
    prior_shape: tuple[float, float] = (0.1, 0.3)
    shape_n: float = 32.0
    shapes: tuple[float, float] = (-0.2, 0.6)
    prior_counted: float = 8.0
    again_s: float = 60.0
    forget_s: float = 14 * 86_400.0


DEFAULT = Config()


class State(NamedTuple):
    """peaks [K, R]; exposure_s, over (the threshold t) and limit [K]; `since_s` of the last look and forgetting [2].

    `counted` [2] counts peaks over the threshold and the events that they belong to.

    `limit` is the value that peaks of clean series exceed at the given rate.
    """

    peaks: NDArray[np.float64]
    exposure_s: NDArray[np.float64]
    over: NDArray[np.float64]
    limit: NDArray[np.float64]
    since_s: NDArray[np.float64]
    counted: NDArray[np.float64]


def init(strata: int, rate: float, config: Config = DEFAULT) -> State:
    """Return the state of strata without data, for limits exceeded `rate` times per series-second."""
    none = np.zeros(strata)
    bare = State(
        np.zeros((strata, config.kept)),
        none,
        np.full(strata, config.least),
        none,
        np.zeros(2),
        np.full(2, config.prior_counted),
    )
    return bare._replace(limit=limits(bare, rate, config))


def step(
    state: State,
    stratum: NDArray[np.int64],
    peak: NDArray[np.float64],
    exposure_s: NDArray[np.float64],
    period_s: float,
    rate: float,
    events: int,
    config: Config = DEFAULT,
) -> State:
    """Update with peaks [n] that have ended, of strata [n], and the exposure [K] of a tick of `period_s`.

    `events` is the number of devices whose peaks over the threshold are new events.

    A peak above the limit counts as one at the limit: an alarm moves the tail by no more than that, and alarms that
    come too often still move it.
    """
    peaks, over, exposure, count = state.peaks, state.over, state.exposure_s + exposure_s, state.counted
    since = state.since_s + period_s
    if len(peak) and (above := peak > over[stratum]).any():
        peaks, over = _inserted(peaks, over, stratum[above], np.minimum(peak[above], state.limit[stratum[above]]))
        count = count + np.array([above.sum(), events])
    elif since[0] < config.again_s:
        return State(peaks, exposure, over, state.limit, since, count)
    if since[1] >= config.forget_s:
        many = (peaks > 0.0).sum(axis=1) >= config.kept // 2
        fewer = np.zeros_like(peaks)
        fewer[:, : -(-config.kept // 2)] = peaks[:, ::2]
        peaks, exposure = np.where(many[:, None], fewer, peaks), np.where(many, exposure / 2.0, exposure)
        since, count = np.array([since[0], 0.0]), count / 2.0
    updated = State(peaks, exposure, over, state.limit, np.array([0.0, since[1]]), count)
    return updated._replace(limit=limits(updated, rate, config))


def _inserted(
    peaks: NDArray[np.float64], over: NDArray[np.float64], stratum: NDArray[np.int64], new: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The largest of old and new peaks, and the threshold: the largest dropped one."""
    kept = peaks.shape[1]
    order = np.lexsort((-new, stratum))
    home, value = stratum[order], new[order]
    rank = np.arange(len(home)) - np.searchsorted(home, home)
    room = np.zeros((len(peaks), int(rank.max()) + 1))
    room[home, rank] = value
    every = -np.sort(-np.concatenate([peaks, room], axis=1), axis=1)
    return every[:, :kept], np.maximum(over, every[:, kept])


def limits(state: State, rate: float, config: Config = DEFAULT) -> NDArray[np.float64]:
    """Value [K] that peaks of clean series exceed `rate` times per series-second; at least the threshold."""
    peak_rate, shape, scale = _fit(state, config)
    share = rate * max(1.0, state.counted[0] / max(state.counted[1], 1.0))
    return state.over + scale * _stretch(np.log(np.maximum(peak_rate / share, 1.0)), shape)


def rates(
    state: State, stratum: NDArray[np.int64], value: NDArray[np.float64], config: Config = DEFAULT
) -> NDArray[np.float64]:
    """Rate at which a clean series exceeds `value` [n] of `stratum` [n], per series-second."""
    peak_rate, shape, scale = (x[stratum] for x in _fit(state, config))
    away = np.maximum(value - state.over[stratum], 0.0) / scale
    safe = np.where(np.abs(shape) < 1e-3, 1e-3, shape)
    return peak_rate * np.maximum(1.0 + safe * away, 1e-6) ** (-1.0 / safe)


def _fit(state: State, config: Config) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Peaks over the threshold per series-second, shape and scale, each [K]."""
    strata = len(state.over)
    prior_excess, prior_shape = (
        np.repeat(each, -(-strata // 2))[:strata] for each in (config.prior_excess, config.prior_shape)
    )
    known = state.peaks > state.over[:, None]
    seen = known.sum(axis=1)
    n = np.maximum(seen, 2).astype(np.float64)
    excess = np.where(known, state.peaks - state.over[:, None], 0.0)
    total = excess.sum(axis=1)
    a0, a1 = total / n, excess @ np.arange(float(excess.shape[1])) / (n - 1.0) / n
    found = np.clip(2.0 - a0 / np.maximum(a0 - 2.0 * a1, 1e-9), -1.0, 1.0)
    shape = (seen * found + config.shape_n * prior_shape) / (seen + config.shape_n)
    shape = np.clip(shape, *config.shapes)
    mean = (total + config.excess_n * prior_excess) / (seen + config.excess_n)
    return (seen + config.prior_n) / (state.exposure_s + config.prior_s), shape, mean * (1.0 - shape)


def _stretch(log_times: NDArray[np.float64], shape: NDArray[np.float64]) -> NDArray[np.float64]:
    """(times^shape - 1) / shape, and its limit log(times) at shape 0."""
    safe = np.where(np.abs(shape) < 1e-3, 1e-3, shape)
    return np.expm1(safe * log_times) / safe
