"""Types that all capacity estimators share: the values of a tick, the result of a window, and an estimate."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

FIELDS = (
    "ready",
    "work",
    "requests",
    "active",
    "queued",
    "busy",
    "latency_s",
    "tokens_out",
    "failed",
    "first_token_s",
    "output_token_s",
    "kv_cache",
)
"""Rows of a tick's input, float64[F, N], NaN where unknown: sums over the replicas of a workload, except ``busy``, the
mean utilisation of its GPUs, and ``latency_s``, the mean latency. ``work`` is the arrivals per second, ``failed`` the
requests that failed per second, ``first_token_s`` and ``output_token_s`` the mean times to the first token and from one
token to the next, ``kv_cache`` the share of the cache of keys and values in use.
"""


class Point(NamedTuple):
    """One window of a workload with a constant number of ready replicas, per ready replica; float64[N], NaN unknown.

    ``served`` is work per second done, ``concurrency`` the requests in service, ``queue`` the least that ever waited,
    ``wait_s`` the mean wait, ``token_s`` the time from one token of a request to its next, ``busy`` the utilisation,
    ``first_token_s`` the time to the first token, ``kv_cache`` the share of the cache of keys and values in use.
    All are NaN where the window cannot be used.
    """

    served: Floats
    concurrency: Floats
    queue: Floats
    wait_s: Floats
    token_s: Floats
    busy: Floats
    work_per_request: Floats
    first_token_s: Floats
    kv_cache: Floats


class Limits(NamedTuple):
    """Limits of the objective, float64[N], NaN without one.

    These are the mean wait, the mean time from token to token and that to the first token.
    """

    wait_s: Floats
    token_s: Floats
    first_token_s: Floats


class Estimate(NamedTuple):
    """Sustainable work per second of one replica and its error, float64[N], NaN without an estimate.

    ``error`` is one standard deviation of the logarithm: 0.1 is some 10 %.
    """

    work_per_s: Floats
    error: Floats


def is_late(point: Point, limits: Limits) -> Bools:
    """Return where a limit is exceeded."""
    late: Bools = point.wait_s > limits.wait_s
    return late | (point.token_s > limits.token_s) | (point.first_token_s > limits.first_token_s)


def empty(*shape: int) -> Floats:
    """Return an array of unknown values."""
    return np.full(shape, np.nan)


def known_or(value: Floats, other: Any) -> Floats:
    """Return the value where it is known, else `other`."""
    return np.where(np.isnan(value), other, value)
