"""Notebooks: each replica runs code now and then and idles in between."""

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from flyball_contracts.config import Notebooks
from flyball_simulator.hardware.site import Ints
from flyball_simulator.loads.base import WAITING, Moment, Running

_SPLITMIX = (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
ACTIVE_SHARE = 0.12
"""Share of time in which a notebook runs code, in windows of :data:`ACTIVE_S`."""
ACTIVE_S = 20.0


class NotebookLoad:
    """All notebook workloads; arrays are [count]."""

    def __init__(self, first: int, configs: tuple[Notebooks, ...]) -> None:
        self.first, self.count = first, len(configs)

    def step(self, moment: Moment, random: Generator, running: Running, rows: Ints) -> None:
        """A replica is active for a whole window or not at all, decided by a hash."""
        window = np.full(len(rows), np.floor(moment.t_s / ACTIVE_S)).astype(np.uint64)
        draw = _uniform(moment.seed, running.workload[rows], running.number[rows], window)
        active = running.ready[rows] & (draw < ACTIVE_SHARE)
        use = np.where(active, 0.55 + 0.4 * (draw / ACTIVE_SHARE), 0.0)
        running.use[rows] = np.where(running.ready[rows], use, WAITING)
        running.work[rows] = 0.6 * use


def _uniform(seed: int, workload: Ints, number: Ints, window: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Uniform numbers in [0, 1) that depend only on the arguments (splitmix64's finalizer)."""
    x = np.uint64(seed) ^ (workload.astype(np.uint64) << np.uint64(40)) ^ (number.astype(np.uint64) << np.uint64(20))
    x = (x ^ window) * np.uint64(_SPLITMIX[0])
    for shift, factor in ((30, _SPLITMIX[1]), (27, _SPLITMIX[2])):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    return ((x ^ (x >> np.uint64(31))) >> np.uint64(11)).astype(np.float64) / 2.0**53
