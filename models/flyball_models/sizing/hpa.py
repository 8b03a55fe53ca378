"""Recommendations of Kubernetes' autoscaler for many workloads at once: :mod:`flyball_models.scaling.hpa` in columns.

It is simulated independently: its replicas are its last recommendation, ready at once, and they serve at most their
capacity.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
EVERY_SAMPLES = 3
"""Samples per evaluation: every 15 s."""
TOLERANCE = 0.1
RECOMMENDATIONS = 21
SLACK = 1e-9


class State(NamedTuple):
    """Its replicas [N], 0 before the first evaluation, and its last recommendations [21, N] in a ring."""

    replicas: Floats
    requested: Floats
    looks: NDArray[np.int64]


def init(n: int) -> State:
    """Return the state of `n` workloads without data."""
    return State(np.zeros(n), np.full((RECOMMENDATIONS, n), -np.inf), np.zeros(n, np.int64))


def step(state: State, work: Floats, target: Floats, have: Floats, least: Floats, most: Floats) -> None:
    """Evaluate the mean work of a minute [N], in replicas, NaN if unknown; changes the state.

    It starts with the workload's replicas; it never requests less than one.
    """
    here = np.flatnonzero(np.isfinite(work) & (target > 0))
    if not len(here):
        return
    least = np.maximum(least[here], 1.0)
    most = np.maximum(most[here], least)
    n = np.clip(np.where(state.replicas[here] > 0, state.replicas[here], have[here]), least, most)
    used = np.minimum(work[here], n) / target[here]
    wanted = np.where(np.abs(used / n - 1.0) > TOLERANCE, np.ceil(used - SLACK), n)
    count = state.looks[here]
    state.requested[count % RECOMMENDATIONS, here] = wanted
    state.looks[here] = count + 1
    top = state.requested[:, here].max(axis=0)
    up = np.minimum(wanted, np.maximum(2.0 * n, n + 4.0))
    state.replicas[here] = np.clip(np.where(wanted > n, up, np.minimum(n, top)), least, most)
