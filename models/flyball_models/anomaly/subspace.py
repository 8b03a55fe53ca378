"""The subspace method, streamed: how far all series of a subject together leave the way in which they usually vary.

A subject, such as a host, has M series x with running means m and covariance C. The variance of a given noise is added
to that of each series, so that small changes of a constant series do not count; with s, the standard deviation of the
sum, z = (x - m) / s. Of the eigenvalues l of the covariance of z, in descending order, the first r explain `explained`
of the variance. With their directions v,

    SPE = |z|^2 - sum_(j<=r) (v_j z)^2        T2 = sum_(j<=r) (v_j z)^2 / l_j
    distance = SPE / sum_(j>r) l_j + T2 / r

where both terms have the mean 1 while nothing changes (Jackson and Mudholkar 1979, "Control procedures for residuals
associated with principal component analysis"; Lakhina, Crovella and Diot 2004, "Diagnosing network-wide traffic
anomalies"). The distance is one quadratic form in z, which is computed again every `refresh_s`, and more often while
little was seen. The score is a running mean of the distance over `event_s`: a lasting departure counts, and a huge one
counts at once. A window updates mean and covariance with the weight min(1, `trusted` / distance), and by no more than
`most` deviations: an anomaly becomes usual only if it lasts. Only the past and the present are used. Times are seconds,
whatever a window is.

Missing values are filled in by the regression on the other series. The variance that this leaves open is added to the
covariance, as in the EM algorithm (Little and Rubin, "Statistical Analysis with Missing Data"), so a gap changes no
variance. A subject with a series that it never had before starts again. After a change of level (:func:`settle`) the
means are learned again, and the covariance is kept.

Shapes: N subjects, M series, arrays [M, N] with the subjects last. The running weights are ours.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


class Config(NamedTuple):
    """Time constants, s; share of the variance that is usual variation; largest |z|; distance with full weight.

    Nothing is scored before `warm_s` and `warm_n` windows, nor before the means are `settle_s` old.
    """

    learn_s: float = 7 * 86_400.0
    event_s: float = 900.0
    refresh_s: float = 3600.0
    warm_s: float = 6 * 3600.0
    warm_n: float = 200.0
    settle_s: float = 1800.0
    explained: float = 0.8
    most: float = 50.0
    trusted: float = 50.0


DEFAULT = Config()
_LEAST = 1e-9
"""Smallest variance that is divided by, where the first directions explain everything."""
_RIDGE = 1e-4
"""Smallest variance of its own, in z, that a known series is taken to have when missing values are filled in."""
_LARGEST = 1e15
"""Values from this size on count as missing: their squares times the number of windows must fit float32."""
_USUAL = 2.0
"""Mean of the distance while nothing changes."""


class State(NamedTuple):
    """`seen_s`, `windows`, `mean_s` since the means are learned, `stale_s` since the form was computed, all [N].

    `smooth` [N] is the score so far, 0 for none. `mean` [M, N], NaN where a series had no value yet, and `scale` [M,
    N], 0 where none was computed. `covariance` of x and `form`, the distance as a quadratic form in z, are [M, M, N].
    """

    seen_s: Floats
    windows: Floats
    mean_s: Floats
    stale_s: Floats
    smooth: Floats
    mean: Floats
    scale: Floats
    covariance: Floats
    form: Floats


class Found(NamedTuple):
    """`score` [N], 2 on average while nothing changes, 0 while too little was seen or nothing came.

    `part` [M, N] is how much this window's distance falls if that series alone has the value predicted from the others
    (Alcala and Qin 2009, "Reconstruction-based contribution for process monitoring"). `expected` [M, N] are the means,
    NaN where there is none.
    """

    score: Floats
    part: Floats
    expected: Floats


def init(n: int, series: int) -> State:
    """Return the state of `n` subjects of `series` series that have had no value."""
    one, row, square = (n,), (series, n), (series, series, n)
    shapes = (one, one, one, one, one, row, row, square, square)
    state = State._make(np.zeros(shape, np.float32) for shape in shapes)
    return state._replace(mean=np.full(row, np.nan, np.float32))


def settle(state: State, subjects: list[int]) -> State:
    """Return the state in which the means of some subjects are learned again; until then they have no score."""
    mean_s, smooth = state.mean_s.copy(), state.smooth.copy()
    mean_s[subjects] = smooth[subjects] = 0.0
    return state._replace(mean_s=mean_s, smooth=smooth)


def step(state: State, x: Floats, noise: Floats, elapsed_s: float, config: Config = DEFAULT) -> tuple[State, Found]:
    """Score and fit the windows `x` [M, N] of `elapsed_s`, NaN where a series has no value.

    `noise` [M] is the standard deviation below which a change is irrelevant, more than 0, in the unit of each series.
    A series without a value, or with one of 1e15 or more, is estimated from the others. A subject without any value
    keeps its state.
    """
    known = np.abs(x) < _LARGEST
    here = known.any(axis=0)
    late = (known & np.isnan(state.mean)).any(axis=0) & (state.windows > 0)
    if late.any():
        ages = (
            np.where(late, np.float32(0.0), age) for age in (state.seen_s, state.windows, state.mean_s, state.smooth)
        )
        state = state._replace(**dict(zip(("seen_s", "windows", "mean_s", "smooth"), ages, strict=True)))
    ready = here & (state.seen_s >= config.warm_s) & (state.windows >= config.warm_n)
    settles = here & (state.mean_s < config.settle_s)
    ready &= ~settles
    scale = np.where(state.scale > 0, state.scale, noise[:, None])
    mean = np.where(np.isnan(state.mean), np.where(known, x, np.float32(np.nan)), state.mean)
    z = np.clip(np.where(known, x - mean, np.float32(0.0)) / scale, -config.most, config.most).astype(np.float32)
    z, unknown = _filled(z, state.covariance, scale, noise, here & ~known & np.isfinite(state.mean), config.most)
    away = z * scale
    slope = np.einsum("ijn,jn->in", state.form, z)
    distance = (z * slope).sum(axis=0)
    part = np.where(known, slope**2 / np.maximum(np.einsum("iin->in", state.form), np.float32(_LEAST)), np.float32(0.0))
    weight = np.where(settles, 1.0, np.minimum(1.0, config.trusted / np.maximum(distance, config.trusted))) * here
    gain = _gain(elapsed_s, config.learn_s)
    pace = (weight * np.maximum(gain, 1.0 / (state.windows + 1.0))).astype(np.float32)
    of_mean = (weight * np.maximum(gain, elapsed_s / (state.mean_s + elapsed_s))).astype(np.float32)
    outer = away[:, None] * ((np.float32(1.0) - of_mean) * away)[None] + unknown
    before = np.where(state.smooth > 0, state.smooth, np.float32(_USUAL))
    smooth = before + np.float32(_gain(elapsed_s, config.event_s)) * (distance - before)
    passed = here * np.float32(elapsed_s)
    new = (
        state.seen_s + passed,
        state.windows + here,
        state.mean_s + passed,
        state.stale_s + passed,
        np.where(ready, smooth, state.smooth),
        mean + of_mean * np.where(known, away, np.float32(0.0)),
        state.scale,
        state.covariance + pace * (outer - state.covariance),
        state.form,
    )
    updated = State._make(np.asarray(array, np.float32) for array in new)
    due = here & (updated.stale_s >= np.minimum(config.refresh_s, 0.1 * updated.seen_s))
    if due.any():
        updated = _refreshed(updated, np.flatnonzero(due), noise, config)
    return updated, Found(np.where(ready, updated.smooth, np.float32(0.0)), part, state.mean)


def _filled(
    z: Floats, covariance: Floats, scale: Floats, noise: Floats, missing: NDArray[np.bool_], most: float
) -> tuple[Floats, Floats | np.float32]:
    """`z` with missing values filled in by the regression on the others, and the covariance of x left open by this."""
    slots = np.flatnonzero(missing.any(axis=0))
    if not len(slots):
        return z, np.float32(0.0)
    unit, gone = scale[:, slots].T.astype(np.float64), missing[:, slots].T
    units = unit[:, :, None] * unit[:, None]
    usual = np.moveaxis(covariance[:, :, slots], -1, 0) / units
    own = np.eye(len(z)) * np.where(gone, 1.0, np.maximum((noise / unit) ** 2, _RIDGE))[:, None]
    given = usual * (~gone[:, :, None] & ~gone[:, None]) + own
    cross = usual * (gone[:, :, None] & ~gone[:, None])
    slope = np.linalg.solve(given, np.swapaxes(cross, 1, 2))
    filled, unknown = z.copy(), np.zeros_like(covariance)
    filled[:, slots] = np.clip(z[:, slots] + np.einsum("nji,nj->ni", slope, z[:, slots].T).T, -most, most)
    left = usual * (gone[:, :, None] & gone[:, None]) - cross @ slope
    unknown[:, :, slots] = np.moveaxis(left * units, 0, -1)
    return filled, unknown


def _refreshed(state: State, slots: NDArray[np.int64], noise: Floats, config: Config) -> State:
    """The state with scales and forms of some slots, computed from the covariance."""
    covariance = np.moveaxis(state.covariance[:, :, slots], -1, 0).astype(np.float64)
    seen, each = np.isfinite(state.mean[:, slots]).T, np.arange(len(noise))
    covariance[:, each, each] += np.where(seen, noise.astype(np.float64) ** 2, 0.0)
    scales = np.where(seen, np.sqrt(covariance[:, each, each]), 1.0)
    found, vectors = np.linalg.eigh(covariance / (scales[:, :, None] * scales[:, None, :]))
    values, vectors = np.maximum(found[:, ::-1], 0.0), vectors[:, :, ::-1]  # rounding may leave some below 0
    usual = np.cumsum(values, axis=1) - values < config.explained * values.sum(axis=1, keepdims=True)
    rank, rest = usual.sum(axis=1, keepdims=True), np.where(usual, 0.0, values).sum(axis=1, keepdims=True)
    divisor: NDArray[np.float64] = np.maximum(rest + usual * (rank * values - rest), _LEAST)
    scale, form, stale_s = state.scale.copy(), state.form.copy(), state.stale_s.copy()
    scale[:, slots], stale_s[slots] = np.where(seen, scales, 0.0).T, 0.0
    form[:, :, slots] = np.moveaxis(np.einsum("nik,nk,njk->nij", vectors, 1.0 / divisor, vectors), 0, -1)
    return state._replace(scale=scale, form=form, stale_s=stale_s)


def _gain(elapsed_s: float, constant_s: float) -> float:
    """Weight of a window in a running mean."""
    return -math.expm1(-elapsed_s / constant_s)
