"""Batch jobs: steady work until they are done."""

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from flyball_collectors.fleet.loads.base import PROGRESS, WAITING, Moment, Running
from flyball_collectors.fleet.site import Ints
from flyball_contracts.config import Batch

BUSY = 0.88


class BatchLoad:
    """All batch jobs; arrays are [count]. ``progress`` is the share of each that is done."""

    def __init__(self, first: int, configs: tuple[Batch, ...]) -> None:
        self.first, self.count = first, len(configs)
        self._nominal = np.array([c.nominal_replicas for c in configs], np.float64)
        self._gang = np.array([c.nominal_replicas if c.gang else 1 for c in configs], np.int64)
        self._duration_s = np.array([c.duration_s for c in configs])
        self.progress: NDArray[np.float64] = np.zeros(self.count)

    def step(self, moment: Moment, random: Generator, running: Running, rows: Ints) -> None:
        """Progress is in proportion to the replicas that are ready."""
        mine = slice(self.first, self.first + self.count)
        ready, speed = running.ready_of[mine], running.speed[mine]
        works = (ready >= self._gang) & (speed > 0)
        pace = np.where(works, ready / self._nominal * speed, 0.0)
        self.progress = np.minimum(self.progress + pace * moment.dt_s / self._duration_s, 1.0)
        level = BUSY + 0.03 * random.standard_normal(self.count)
        of = running.workload[rows] - self.first
        on = running.ready[rows] & works[of]
        running.use[rows] = np.where(on, np.clip(level, 0.0, 1.0)[of], WAITING)
        running.work[rows] = np.where(on, (level * speed)[of], 0.01)
        running.report[rows, PROGRESS] = self.progress[of]
