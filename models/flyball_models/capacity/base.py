"""What all members share: what a tick says, what a window says, and what an estimate is."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

FIELDS = ("ready", "work", "requests", "active", "queued", "busy", "latency_s", "tokens_out", "failed")
"""Rows of what is seen in a tick, float64[9, N], NaN where unknown: sums over the replicas of a workload, but ``busy``
is the mean utilisation of its GPUs and ``latency_s`` the mean latency. ``work`` is what arrived per second, ``failed``
the requests that failed per second."""


class Point(NamedTuple):
    """One window of a workload with a constant number of ready replicas, per ready replica; float64[N], NaN unknown.

    ``served`` is work per second done, ``concurrency`` the requests in service, ``queue`` the least that ever waited,
    ``wait_s`` the mean wait, ``pace_s`` the time from one token of a request to its next, ``busy`` the utilisation.
    All are NaN where the window cannot be used.
    """

    served: Floats
    concurrency: Floats
    queue: Floats
    wait_s: Floats
    pace_s: Floats
    busy: Floats
    work_per_request: Floats


class Limits(NamedTuple):
    """What was promised, float64[N], NaN for nothing: the mean wait and the time from token to token that may be."""

    wait_s: Floats
    pace_s: Floats


class Estimate(NamedTuple):
    """Sustainable work per second of one replica and how wrong it may be, float64[N], NaN where there is none.

    ``error`` is one standard deviation of the logarithm: 0.1 is some 10 %.
    """

    work_per_s: Floats
    error: Floats


def empty(*shape: int) -> Floats:
    """Return an array of unknown values."""
    return np.full(shape, np.nan)


def known_or(value: Floats, other: Any) -> Floats:
    """Return the value where it is known, and `other` elsewhere."""
    return np.where(np.isnan(value), other, value)
