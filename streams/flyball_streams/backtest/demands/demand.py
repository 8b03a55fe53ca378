"""Demand on a fleet, second by second."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
DAY_S = 86_400
WEEK_S = 7 * DAY_S
MINUTE_S = 60


class Demand(NamedTuple):
    """Work and requests that arrive in each second, float64 [T]; work is in seconds of one replica.

    ``about`` describes the source and the assumptions; ``start_s`` is the Unix time of the first second.
    """

    name: str
    work: Floats
    requests: Floats
    about: str = ""
    start_s: float = 0.0

    @property
    def hours(self) -> float:
        """Length in hours."""
        return len(self.work) / 3600

    def scaled(self, mean_work: float) -> "Demand":
        """Return a copy whose work keeps `mean_work` replicas busy on average."""
        have = float(self.work.mean())
        return self if have <= 0 else self._replace(work=self.work * (mean_work / have))


def trailing_mean(work: Floats, seconds: int) -> Floats:
    """Mean of the last `seconds`, float64 [T]. Before the start there is no work."""
    total = np.concatenate([np.zeros(seconds), np.cumsum(work)])
    return np.asarray((total[seconds:] - total[: len(work)]) / seconds, np.float64)


def requirement(demand: Demand, delay_s: int, quantile: float = 0.9) -> Floats:
    """Replicas that each minute needs, float64 [minutes].

    This is the request-weighted `quantile`, within the minute, of the trailing `delay_s` mean of work: with this many
    replicas, about that share of the requests waits no longer than `delay_s`. An incomplete last minute is dropped.
    """
    minutes = len(demand.work) // MINUTE_S
    need = trailing_mean(demand.work, delay_s)[: minutes * MINUTE_S].reshape(minutes, MINUTE_S)
    weight = demand.requests[: minutes * MINUTE_S].reshape(minutes, MINUTE_S) + 1e-12
    order = np.argsort(need, axis=1)
    need, weight = np.take_along_axis(need, order, 1), np.take_along_axis(weight, order, 1)
    share = np.cumsum(weight, axis=1) / weight.sum(axis=1, keepdims=True)
    first = (share < quantile - 1e-9).sum(axis=1)
    return np.asarray(np.take_along_axis(need, first[:, None], 1)[:, 0], np.float64)
