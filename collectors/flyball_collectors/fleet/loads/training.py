"""Training gangs: all replicas in step, at the pace of the slowest GPU, with a checkpoint at regular times."""

import numpy as np
from numpy.random import Generator

from flyball_collectors.fleet.loads.base import STEP_TIME, WAITING, Moment, Running, share_in
from flyball_collectors.fleet.site import Ints
from flyball_contracts.config import Training

FULL, CHECKPOINT, HUNG_WORK = 0.96, 0.08, 0.25
"""Utilisation in steps and in checkpoints; work of a rank that spins because a peer is dead."""


class TrainingLoad:
    """All training workloads; arrays are [count]."""

    def __init__(self, first: int, configs: tuple[Training, ...]) -> None:
        self.first, self.count = first, len(configs)
        self._gang = np.array([c.replicas for c in configs], np.int64)
        self._step_s = np.array([c.step_s for c in configs], np.float32)
        self._every_s = np.array([c.checkpoint_every_s for c in configs], np.float32)
        self._checkpoint_s = np.minimum(np.array([c.checkpoint_s for c in configs], np.float32), self._every_s)

    def step(self, moment: Moment, random: Generator, running: Running, rows: Ints) -> None:
        """A rank that waits for a slow peer is less busy; one that waits for a dead peer spins at little power."""
        mine = slice(self.first, self.first + self.count)
        speed = running.speed[mine]
        whole = (running.ready_of[mine] >= self._gang) & (self._gang > 0)
        saved = share_in(self._every_s, self._checkpoint_s, moment)
        phase = 0.02 * np.sin(2.0 * np.pi * moment.t_s / (3.7 * self._step_s))
        full = FULL + phase + 0.006 * random.standard_normal(self.count, np.float32)
        slow = np.where(speed > 0, 0.55 + 0.45 * speed, 1.0)
        use = np.where(whole, (1.0 - saved) * np.where(speed > 0, full * slow, 1.0) + saved * CHECKPOINT, WAITING)
        work = np.where(whole, (1.0 - saved) * np.where(speed > 0, full * speed, HUNG_WORK) + saved * 0.05, 0.01)
        stepping = whole & (speed > 0) & (saved < 1.0)
        step_s = np.where(stepping, self._step_s / np.maximum(speed * (1.0 - saved), 1e-3), np.nan)
        step_s *= 1.0 + 0.01 * random.standard_normal(self.count, np.float32)

        of = running.workload[rows] - self.first
        running.use[rows] = np.clip(use, 0.0, 1.0)[of]
        running.work[rows] = np.clip(work, 0.0, 1.0)[of]
        running.io[rows] = np.where(whole & (speed > 0), saved, 0.0)[of]
        running.report[rows, STEP_TIME] = step_s[of]
