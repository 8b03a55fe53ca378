"""Training gangs: all replicas in step, at the pace of the slowest GPU, with regular checkpoints."""

import numpy as np
from numpy.random import Generator

from flyball_contracts.config import Training
from flyball_simulator.hardware.site import Ints
from flyball_simulator.loads.base import STEP_TIME, WAITING, Moment, Running, accrued, share_in

FULL, CHECKPOINT, HUNG_WORK = 0.96, 0.08, 0.25
"""Utilization in steps and in checkpoints; work of a rank that spins because a peer is dead."""


class TrainingLoad:
    """All training workloads; arrays are [count].

    ``unsaved_s`` are the replica-seconds of work since the last checkpoint, ``done_s`` those that were not lost.
    """

    def __init__(self, first: int, configs: tuple[Training, ...]) -> None:
        self.first, self.count = first, len(configs)
        self._gang = np.array([c.replicas for c in configs], np.int64)
        self._step_s = np.array([c.step_s for c in configs], np.float32)
        self._every_s = np.array([c.checkpoint_every_s for c in configs], np.float32)
        self.unsaved_s, self.done_s = np.zeros((2, self.count))
        self._checkpoint_s = np.minimum(np.array([c.checkpoint_s for c in configs], np.float32), self._every_s)

    def step(self, moment: Moment, random: Generator, running: Running, rows: Ints) -> None:
        """A rank that waits for a slow peer is less busy; one that waits for a dead peer spins at low power."""
        mine = slice(self.first, self.first + self.count)
        speed, ready = running.speed[mine], running.ready_of[mine]
        whole = (ready >= self._gang) & (self._gang > 0)
        saved = share_in(self._every_s, self._checkpoint_s, moment)
        saved[running.workload[rows[running.saving[rows]]] - self.first] = 1.0
        phase = 0.02 * np.sin(2.0 * np.pi * moment.t_s / (3.7 * self._step_s))
        full = FULL + phase + 0.006 * random.standard_normal(self.count, np.float32)
        runs = whole & (speed > 0)
        pace = np.where(runs, ready * speed * (1.0 - saved), 0.0)
        self.unsaved_s = accrued(self.unsaved_s, pace, runs, self._every_s, moment)
        self.done_s += pace * moment.dt_s
        stepping = runs & (saved < 1.0)
        step_s = np.where(stepping, self._step_s / np.maximum(speed * (1.0 - saved), 1e-3), np.nan)
        step_s *= 1.0 + 0.01 * random.standard_normal(self.count, np.float32)

        of = running.workload[rows] - self.first
        busy = speed[of] / np.maximum(running.pace[rows], 1e-3)  # the rest of the time it waits for the slowest
        use = np.where(runs[of], full[of] * (0.55 + 0.45 * busy), 1.0)
        work = np.where(runs[of], full[of] * busy, HUNG_WORK)
        rest = np.where(runs, saved, 0.0)[of]  # a gang that hangs writes no checkpoint
        running.use[rows] = np.where(whole[of], np.clip((1.0 - rest) * use + rest * CHECKPOINT, 0.0, 1.0), WAITING)
        running.work[rows] = np.where(whole[of], np.clip((1.0 - rest) * work + rest * 0.05, 0.0, 1.0), 0.01)
        running.io[rows] = rest
        running.report[rows, STEP_TIME] = step_s[of]

    def keep(self, i: int, share: float) -> None:
        """Note that a share of the unsaved work was saved."""
        self.unsaved_s[i] *= 1.0 - share

    def lose(self, i: int, share: float) -> float:
        """Discard a share of the unsaved work; returns the replica-seconds."""
        lost = float(share * self.unsaved_s[i])
        self.unsaved_s[i] -= lost
        self.done_s[i] -= lost
        return lost
