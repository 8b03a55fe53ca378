"""Batch jobs: steady work until they are done."""

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from flyball_contracts.config import Batch
from flyball_simulator.hardware.site import Ints
from flyball_simulator.loads.base import PROGRESS, WAITING, Doubles, Moment, Running, accrued

BUSY = 0.88


class BatchLoad:
    """All batch jobs; arrays are [count]. ``progress`` is the finished share of each.

    ``unsaved_s`` are the replica-seconds of work since the last checkpoint.
    """

    def __init__(self, first: int, configs: tuple[Batch, ...]) -> None:
        self.first, self.count = first, len(configs)
        self._nominal = np.array([c.nominal_replicas for c in configs], np.float64)
        self._gang = np.array([c.nominal_replicas if c.gang else 1 for c in configs], np.int64)
        self._every_s = np.array([c.checkpoint_every_s for c in configs], np.float32)
        self.unsaved_s = np.zeros(self.count)
        self._duration_s = np.array([c.duration_s for c in configs])
        self.progress: NDArray[np.float64] = np.zeros(self.count)

    def step(self, moment: Moment, random: Generator, running: Running, rows: Ints) -> None:
        """Progress is proportional to the ready replicas."""
        mine = slice(self.first, self.first + self.count)
        ready = running.ready_of[mine]
        # The ranks of a gang go at the pace of the slowest, the tasks of a job each at its own.
        capacity = np.where(self._gang > 1, ready * running.speed[mine], running.capacity_of[mine])
        saves = np.zeros(self.count, np.bool_)
        saves[running.workload[rows[running.saving[rows] & running.ready[rows]]] - self.first] = True
        works = (ready >= self._gang) & (capacity > 0) & ~saves
        pace = np.where(works, capacity, 0.0)
        self.unsaved_s = accrued(self.unsaved_s, pace, works, self._every_s, moment)
        self.progress = np.minimum(self.progress + pace * moment.dt_s / (self._nominal * self._duration_s), 1.0)
        level = BUSY + 0.03 * random.standard_normal(self.count)
        of = running.workload[rows] - self.first
        on = running.ready[rows] & works[of]
        running.use[rows] = np.where(on, np.clip(level, 0.0, 1.0)[of], WAITING)
        running.work[rows] = np.where(on, level[of], 0.01)
        running.io[rows] = running.saving[rows]
        running.report[rows, PROGRESS] = self.progress[of]

    @property
    def done_s(self) -> Doubles:
        """Replica-seconds of work that are done and not lost, [count]."""
        seconds: Doubles = self.progress * self._nominal * self._duration_s
        return seconds

    def keep(self, i: int, share: float) -> None:
        """Note that a share of the unsaved work was saved."""
        self.unsaved_s[i] *= 1.0 - share

    def lose(self, i: int, share: float) -> float:
        """Discard a share of the unsaved work and its progress; returns the replica-seconds."""
        lost = float(share * self.unsaved_s[i])
        self.unsaved_s[i] -= lost
        self.progress[i] = max(self.progress[i] - lost / (self._nominal[i] * self._duration_s[i]), 0.0)
        return lost
