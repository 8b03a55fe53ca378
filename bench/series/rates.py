"""A series of counts, converted to requests that a fleet of replicas serves."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flyball_contracts.errors import RecordingError
from flyball_streams.backtest.demands.demand import Demand, Floats

MEAN_RPS = 88.0
MEAN_WORK = 20.0


class Rates(NamedTuple):
    """Requests in each window of ``window_s`` seconds, float64 [windows]; windows start at Unix time ``start_s``."""

    name: str
    counts: Floats
    window_s: int
    start_s: float
    about: str

    def part(self, seconds: int) -> "Rates":
        """Return the first `seconds`."""
        return self._replace(counts=self.counts[: seconds // self.window_s])

    def demand(self, seed: int) -> Demand:
        """Draw demand: a Poisson process in each window; all requests are equal.

        One factor scales the mean rate to :data:`MEAN_RPS`, another the work to :data:`MEAN_WORK` busy replicas. A
        series of few events becomes bursty.
        """
        rate = np.repeat(self.counts * (MEAN_RPS / float(self.counts.mean())), self.window_s)
        requests = np.random.default_rng([seed, 4]).poisson(rate).astype(np.float64)
        about = f"{self.about}, scaled to {MEAN_RPS:g} requests/s that keep {MEAN_WORK:g} replicas busy"
        return Demand(self.name, requests, requests, about, self.start_s).scaled(MEAN_WORK)


def gridded(name: str, time_s: NDArray[np.int64], counts: Floats, window_s: int, about: str) -> Rates:
    """Put counts, float64 [n] in ascending `time_s`, into consecutive windows; interpolate missing ones.

    Raises :class:`RecordingError` if all counts are zero.
    """
    place = (time_s - time_s[0]) // window_s
    found = np.full(int(place[-1]) + 1, np.nan)
    found[place] = np.maximum(counts, 0.0)
    known = np.isfinite(found)
    if not np.nansum(found) > 0.0:
        raise RecordingError(f"{name}: nothing was counted in it; is it the right series?")
    at = np.flatnonzero(known)
    found = np.interp(np.arange(len(found)), at, found[at])
    gaps = int((~known).sum())
    described = f"{about}, {len(found) * window_s / 86_400:.0f} d" + (f", {gaps} windows interpolated" if gaps else "")
    return Rates(name, found, window_s, float(time_s[0]), described)
