"""Memory that fills up, and the time when it will be full at the present growth.

The mean of each half minute is kept for ten minutes. A line through them, by least squares, gives the growth of memory;
it counts if it explains nearly all of the variance. A caching allocator that fills its pool slows down, a leak does
not: when the newer half of the time grew r < 1 times as much as the older, and each later half does so again, the
remaining growth is the newer half's growth times r / (1 - r), and that must be enough to fill the memory.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flyball_models.profile.signals import Floats


class Config(NamedTuple):
    """Number and length in s of the means; minimum known ones; required explained variance.

    Share at which memory is full.
    """

    kept: int = 20
    bucket_s: float = 30.0
    least: int = 18
    explained: float = 0.9
    full: float = 0.985


DEFAULT = Config()


class State(NamedTuple):
    """ring [B, N] the means, NaN where unknown, oldest first; total, known [N] of the bucket under way; opened_s []."""

    ring: Floats
    total: Floats
    known: Floats
    opened_s: NDArray[np.float64]


class Filling(NamedTuple):
    """All [N]: seconds until memory is full, NaN where it is not filling; growth as a share of memory per second.

    ``share`` is the newest mean, ``explained`` the part of the variance that the line explains.
    """

    lead_s: Floats
    rate_per_s: Floats
    share: Floats
    explained: Floats


def init(n: int, config: Config = DEFAULT) -> State:
    """Return the state of `n` devices without data."""
    ring = np.full((config.kept, n), np.nan, np.float32)
    return State(ring, np.zeros(n, np.float32), np.zeros(n, np.float32), np.asarray(np.nan))


def step(
    state: State, memory: Floats, mask: NDArray[np.bool_], now_s: float, config: Config = DEFAULT
) -> tuple[State, bool]:
    """Add the share of memory in use, [N], of those in `mask`; also return whether a mean was completed."""
    opened_s = float(state.opened_s) if np.isfinite(state.opened_s) else now_s
    ring, total, count = state.ring, state.total, state.known
    whole = not 0.0 <= now_s - opened_s < config.bucket_s
    if whole:
        newest = np.where(count > 0, total / np.maximum(count, 1.0), np.float32(np.nan))
        ring = np.concatenate([ring[1:], newest[None]])
        total, count, opened_s = np.zeros_like(total), np.zeros_like(count), now_s
    known = mask & np.isfinite(memory)
    total = total + np.where(known, memory, np.float32(0.0))
    return State(ring, total, count + known.astype(np.float32), np.asarray(opened_s)), whole


def summarize(state: State, config: Config = DEFAULT) -> Filling:
    """Return when each memory is full."""
    ring = state.ring.astype(np.float64)
    slope, share, explained, known = _line(ring, config.bucket_s)
    half = config.kept // 2
    older, newer = _line(ring[:half], config.bucket_s)[0], _line(ring[half:], config.bucket_s)[0]
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = newer / older
        to_come = np.where(
            (older > 0.0) & (ratio < 1.0), newer * half * config.bucket_s * ratio / (1.0 - ratio), np.inf
        )
        goes_on = (newer > 0.0) & ~(share + to_come < config.full)
        fills = (known >= config.least) & (slope > 0.0) & (explained >= config.explained) & goes_on
        fills &= np.isfinite(ring[-1])
        rate = np.maximum(slope, newer)
        lead = np.where(fills, np.maximum(config.full - share, 0.0) / rate, np.nan)
    parts = (lead, rate, share, explained)
    return Filling(*(np.asarray(part, np.float32) for part in parts))


def _line(
    ring: NDArray[np.float64], bucket_s: float
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
    """Slope per second, value at the end, explained part of the variance, and known means of a line through each."""
    known = np.isfinite(ring)
    n = known.sum(axis=0)
    t = np.arange(1 - len(ring), 1, dtype=np.float64)[:, None] * bucket_s
    with np.errstate(invalid="ignore", divide="ignore"):
        x = np.where(known, ring, 0.0)
        mean_t, mean_x = (np.where(known, v, 0.0).sum(axis=0) / n for v in (t, ring))
        dt, dx = np.where(known, t - mean_t, 0.0), np.where(known, x - mean_x, 0.0)
        both, squares, variance = (dt * dx).sum(axis=0), (dt * dt).sum(axis=0), (dx * dx).sum(axis=0)
        slope = both / squares
        explained = both * both / (squares * variance)
        end = mean_x - slope * mean_t
    return slope, end, explained, n
