"""Single requests of a demand, in windows of it.

Their work and number per second equal those of the demand, except for what :func:`drawn` must round, so both engines
serve the same.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from flyball_streams.backtest.demands.demand import Demand, Floats

PROMPT_SHARE = 0.42
"""Default share of a request's work that its prompt takes: the share in the mean chat request."""
Window = tuple[int, int]
"""First second, and the one after the last."""


class Requests(NamedTuple):
    """Requests in order of arrival, float64 [n]; all times in seconds, work in seconds of one replica.

    ``at_s`` counts from the first second of the demand; ``first_s`` is the work before the first token (the prompt),
    ``rest_s`` the work after it.
    """

    at_s: Floats
    first_s: Floats
    rest_s: Floats


Source = Callable[[Demand, Sequence[Window], int], list[Requests]]
"""Returns the single requests of a demand in some windows; the number is the seed of its arrivals."""


def drawn(demand: Demand, windows: Sequence[Window], seed: int = 0, share: float = PROMPT_SHARE) -> list[Requests]:
    """Draw requests for a demand of which only sums per second are known.

    Each second has the number of requests in its sum, rounded so that none is lost over time, and at least one if there
    is work; arrival times are uniform. The work of a second is divided into exponential parts.
    """
    found: list[Requests] = []
    for begin, end in windows:
        rng = np.random.default_rng([seed, begin])
        work = demand.work[begin:end]
        total = np.floor(np.cumsum(demand.requests[begin:end]) + 1e-9)
        counts = np.diff(total, prepend=0.0).astype(np.int64)
        counts[(counts == 0) & (work > 0)] = 1
        second = np.repeat(np.arange(len(work)), counts)
        at_s = np.sort(begin + second + rng.random(len(second)))
        parts = rng.standard_exponential(len(second))
        sums = np.bincount(second, parts, len(work))
        each = parts * (work / np.where(sums > 0, sums, 1.0))[second]
        found.append(Requests(at_s, each * share, each - each * share))
    return found
