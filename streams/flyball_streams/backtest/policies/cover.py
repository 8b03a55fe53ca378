"""Oracle B: the cheapest cover of a need that is known in advance."""

import numpy as np
from numpy.typing import NDArray

from flyball_models.scaling.compile import kept
from flyball_streams.backtest.demands.demand import Demand, trailing_mean
from flyball_streams.backtest.kernel import Floats


@kept
def _cover(need: NDArray[np.int64], cold_s: int, drain_s: int, billed: Floats) -> None:
    last = np.full(need.max() + 1, -1)
    for t in range(len(need)):
        billed[t] += need[t]
        for k in range(need[t]):
            idle = t - last[k] - 1
            if last[k] < 0:
                billed[t] += cold_s
            elif idle > 0:
                billed[t] += min(idle, cold_s + drain_s)
            last[k] = t


def cover(
    demand: Demand, delay_s: int, cold_start_s: float, drain_s: int = 30, least: int = 2, most: int = 100_000
) -> Floats:
    """Billed replica seconds of the clairvoyant cover, float64 [T]; an interruption is booked where it ends.

    The need is the trailing `delay_s` mean of work, rounded up. Layer k is on while the need is at least k;
    interruptions of up to cold start + drain are bridged, longer ones cost both. This is optimal for a cover that
    serves all requests in time; a policy that leaves some late may cost less. Above `most` replicas, it serves late.
    """
    need = np.clip(np.ceil(trailing_mean(demand.work, delay_s) - 1e-9), least, most).astype(np.int64)
    billed = np.zeros(len(need))
    if len(need):
        _cover(need, round(cold_start_s), drain_s, billed)
    return billed
