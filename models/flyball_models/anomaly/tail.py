"""Rates of large peaks of clean series: the tail of their distribution, pooled over all series of a stratum.

Peaks over a threshold t follow a generalised Pareto distribution (Pickands 1975). Of n peaks in an exposure of E
series-seconds, with excesses y in descending order y_0 .. y_(n-1) over t, probability-weighted moments (Hosking and
Wallis 1987) give its shape and scale without a search:

    a0 = mean(y)    a1 = mean(j / (n - 1) * y_j)    shape = 2 - a0 / (a0 - 2 a1)    scale = a0 (1 - shape)

so that peaks above v come at the rate (n / E) (1 + shape (v - t) / scale)^(-1 / shape) per series-second. Each of n /
E, a0 and shape starts from a prior with the weight of some observations, which data outweigh: a stratum without data
has a wide tail.

The shape of n peaks has a standard error of about (1 + shape) / sqrt(n), and limits lie far beyond the peaks, so a
limit by the estimate alone is passed too often. The rate is therefore the expected one, over three shapes that stand
for a normal distribution with that error (Gauss-Hermite quadrature).

A quantity in which fleets differ has two priors for the rate of its peaks, of which one is right: most fleets have
almost no peaks, and some have many. Each prior counts by its likelihood of n peaks in E (negative binomial). With a
single calm prior, that prior would outweigh the data of a busy fleet for days, and limits would be too low for as long.

Peaks are kept in two periods of `forget_s`, the current and the one before it. When a period ends, the older one is
dropped, and the threshold can fall; a stratum with few peaks keeps them.

Strata overlap: one cause changes power and clock of a device. Peaks of one device within `event_s` are one event; peaks
and events are counted, and the allowed rate of a stratum is multiplied by their ratio.

Shapes: K strata, R peaks kept of each and period, descending, 0 where there are fewer.
"""

from math import lgamma
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_ERRORS = np.array([-(3.0**0.5), 0.0, 3.0**0.5])[:, None]
_WEIGHTS = np.array([1.0, 4.0, 1.0])[:, None] / 6.0
_STEPS = 8


class Config(NamedTuple):
    """What is kept, the prior, and the length of a period.

    The prior equals `prior_n` peaks over `least` in `prior_s` series-seconds; the mean excess `prior_excess` weighs as
    much as `excess_n` peaks, the shape `prior_shape` as much as `shape_n`. Excess and shape have one value for the
    first half of the strata, series with peers, and one for the second, series without. With probability `busy_share`
    the prior of the rate is `busy_n` peaks in `busy_s` instead.
    """

    kept: int = 64
    least: float = 1.0
    prior_n: float = 0.5
    prior_s: float = 86_400.0
    busy_share: float = 0.0
    busy_n: float = 0.5
    busy_s: float = 864_000.0
    prior_excess: tuple[float, float] = (0.3, 2.0)
    excess_n: float = 1.0
    prior_shape: tuple[float, float] = (-0.15, 0.4)
    shape_n: float = 32.0
    shapes: tuple[float, float] = (-0.2, 0.6)
    prior_counted: float = 8.0
    again_s: float = 60.0
    forget_s: float = 14 * 86_400.0


DEFAULT = Config()


class State(NamedTuple):
    """Of both periods, the current one first: peaks [2, K, R], exposure_s and over (the threshold t) [2, K].

    `since_s` [2] is the time since the last look and since the period began. `counted` [2] counts peaks over the
    threshold and the events that they belong to.

    `limit` [K] is the value that peaks of clean series exceed at the given rate.
    """

    peaks: NDArray[np.float64]
    exposure_s: NDArray[np.float64]
    over: NDArray[np.float64]
    limit: NDArray[np.float64]
    since_s: NDArray[np.float64]
    counted: NDArray[np.float64]

    @property
    def threshold(self) -> NDArray[np.float64]:
        """Value [K] above which no peak of either period was dropped."""
        return np.asarray(self.over.max(axis=0))


class _Fit(NamedTuple):
    """Peaks over the threshold per series-second [K]; the three shapes and their scales [3, K]."""

    peak_rate: NDArray[np.float64]
    shape: NDArray[np.float64]
    scale: NDArray[np.float64]


def init(strata: int, rate: float, config: Config = DEFAULT) -> State:
    """Return the state of strata without data, for limits exceeded `rate` times per series-second."""
    bare = State(
        np.zeros((2, strata, config.kept)),
        np.zeros((2, strata)),
        np.full((2, strata), config.least),
        np.zeros(strata),
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
    since, exposure = state.since_s + period_s, state.exposure_s.copy()
    exposure[0] += exposure_s
    state = State(state.peaks, exposure, state.over, state.limit, since, state.counted)
    if len(peak) and (above := peak > state.over[0, stratum]).any():
        most = np.maximum(state.limit, np.nextafter(state.threshold, np.inf))  # at the threshold it would not count
        state = _inserted(state, stratum[above], np.minimum(peak[above], most[stratum[above]]))
        counted = int((peak > state.threshold[stratum]).sum())
        state = state._replace(counted=state.counted + np.array([counted, min(events, counted)]))
    elif since[0] < config.again_s:
        return state
    if since[1] >= config.forget_s:
        state = _next_period(state, config)
    updated = state._replace(since_s=np.array([0.0, state.since_s[1]]))
    return updated._replace(limit=limits(updated, rate, config))


def _inserted(state: State, stratum: NDArray[np.int64], new: NDArray[np.float64]) -> State:
    """The largest of old and new peaks of the current period; its threshold is the largest dropped one."""
    kept = state.peaks.shape[2]
    order = np.lexsort((-new, stratum))
    home, value = stratum[order], new[order]
    rank = np.arange(len(home)) - np.searchsorted(home, home)
    room = np.zeros((state.peaks.shape[1], int(rank.max()) + 1))
    room[home, rank] = value
    peaks, over = state.peaks.copy(), state.over.copy()
    every = -np.sort(-np.concatenate([peaks[0], room], axis=1), axis=1)
    peaks[0], over[0] = every[:, :kept], np.maximum(over[0], every[:, kept])
    return state._replace(peaks=peaks, over=over)


def _next_period(state: State, config: Config) -> State:
    """The current period becomes the one before it; where both have few peaks they are joined instead."""
    both, threshold = -np.sort(-np.concatenate(list(state.peaks), axis=1), axis=1), state.threshold
    few = (both > 0.0).sum(axis=1) < config.kept // 2  # ties at the threshold count: they must not hold it up for good
    joined = np.where(both > threshold[:, None], both, 0.0)[:, : config.kept]
    none, exposure_s = np.zeros(joined.shape), state.exposure_s[0] + few * state.exposure_s[1]
    return state._replace(
        peaks=np.stack([none, np.where(few[:, None], joined, state.peaks[0])]),
        exposure_s=np.stack([np.zeros(few.shape), exposure_s]),
        over=np.stack([np.full(len(few), config.least), np.where(few, threshold, state.over[0])]),
        since_s=np.array([state.since_s[0], 0.0]),
        counted=state.counted / 2.0,
    )


def limits(state: State, rate: float, config: Config = DEFAULT) -> NDArray[np.float64]:
    """Value [K] that peaks of clean series exceed `rate` times per series-second; at least the threshold.

    A mixture of shapes has no closed inverse: Newton's method on the logarithm of the rate, from below.
    """
    fit = _fit(state, config)
    share = rate * max(1.0, state.counted[0] / max(state.counted[1], 1.0))
    log_times = np.log(np.maximum(fit.peak_rate / share, 1.0))
    low, high = (
        (fit.scale * _stretch(np.maximum(log_times + np.log(weight), 0.0), fit.shape)).max(axis=0)
        for weight in (_WEIGHTS, _WEIGHTS * len(_WEIGHTS))
    )
    excess = low
    for _ in range(_STEPS):
        part = _WEIGHTS * _beyond(excess, fit)
        total = np.maximum(part.sum(axis=0), 1e-300)
        off = np.log(total) + log_times
        if (np.abs(off) < 1e-7).all():
            break
        slope = (part / np.maximum(fit.scale + fit.shape * excess, 1e-9)).sum(axis=0)
        excess = np.clip(excess + off * total / slope, low, high)
    return np.asarray(state.threshold + excess)


def rates(
    state: State, stratum: NDArray[np.int64], value: NDArray[np.float64], config: Config = DEFAULT
) -> NDArray[np.float64]:
    """Rate at which a clean series exceeds `value` [n] of `stratum` [n], per series-second."""
    fit = _fit(state, config)
    mine = _Fit(fit.peak_rate[stratum], fit.shape[:, stratum], fit.scale[:, stratum])
    away = np.maximum(value - state.threshold[stratum], 0.0)
    return np.asarray(mine.peak_rate * (_WEIGHTS * _beyond(away, mine)).sum(axis=0))


def _fit(state: State, config: Config) -> _Fit:
    strata, threshold = state.limit.shape[0], state.threshold
    prior_excess, prior_shape = (
        np.repeat(each, -(-strata // 2))[:strata] for each in (config.prior_excess, config.prior_shape)
    )
    peaks = -np.sort(-np.concatenate(list(state.peaks), axis=1), axis=1)
    known = peaks > threshold[:, None]
    seen = known.sum(axis=1)
    n = np.maximum(seen, 2).astype(np.float64)
    excess = np.where(known, peaks - threshold[:, None], 0.0)
    total = excess.sum(axis=1)
    a0, a1 = total / n, excess @ np.arange(float(excess.shape[1])) / (n - 1.0) / n
    found = np.clip(2.0 - a0 / np.maximum(a0 - 2.0 * a1, 1e-9), -1.0, 1.0)
    middle = (seen * found + config.shape_n * prior_shape) / (seen + config.shape_n)
    middle = np.clip(middle, *config.shapes)
    shape = np.clip(middle + _ERRORS * (1.0 + middle) / np.sqrt(seen + config.shape_n), *config.shapes)
    mean = (total + config.excess_n * prior_excess) / (seen + config.excess_n)
    return _Fit(_peak_rate(seen, state.exposure_s.sum(axis=0), config), shape, mean * (1.0 - shape))


def _peak_rate(seen: NDArray[np.int64], exposure_s: NDArray[np.float64], config: Config) -> NDArray[np.float64]:
    """Expected peaks over the threshold per series-second [K], over both priors."""
    calm = (seen + config.prior_n) / (exposure_s + config.prior_s)
    if not config.busy_share:
        return np.asarray(calm)
    busy = (seen + config.busy_n) / (exposure_s + config.busy_s)
    odds = (
        np.log(config.busy_share / (1.0 - config.busy_share))
        + _log_likelihood(seen, exposure_s, config.busy_n, config.busy_s)
        - _log_likelihood(seen, exposure_s, config.prior_n, config.prior_s)
    )
    share = 1.0 / (1.0 + np.exp(np.clip(-odds, -50.0, 50.0)))
    return np.asarray(calm + share * (busy - calm))


def _log_likelihood(
    seen: NDArray[np.int64], exposure_s: NDArray[np.float64], prior_n: float, prior_s: float
) -> NDArray[np.float64]:
    """Log likelihood of `seen` peaks under a gamma prior of their rate, up to terms that no prior changes."""
    counts: list[int] = seen.tolist()
    ways = np.array([lgamma(prior_n + n) - lgamma(prior_n) for n in counts])
    return np.asarray(ways - prior_n * np.log1p(exposure_s / prior_s) - seen * np.log(exposure_s + prior_s))


def _beyond(excess: NDArray[np.float64], fit: _Fit) -> NDArray[np.float64]:
    """Share [3, K] of the peaks over the threshold whose excess is over `excess` [K], by each shape."""
    safe = np.where(np.abs(fit.shape) < 1e-3, 1e-3, fit.shape)
    return np.asarray(np.maximum(1.0 + safe * excess / fit.scale, 1e-6) ** (-1.0 / safe))


def _stretch(log_times: NDArray[np.float64], shape: NDArray[np.float64]) -> NDArray[np.float64]:
    """(times^shape - 1) / shape, and its limit log(times) at shape 0."""
    safe = np.where(np.abs(shape) < 1e-3, 1e-3, shape)
    return np.expm1(safe * log_times) / safe
