"""The load interface: what the replicas of one kind of workload do in a tick.

A load sees all placed replicas and writes only the rows of its own workloads, which have the numbers ``first`` to
``first + count - 1`` in the fleet. Loads keep state per workload, never per replica, because replicas come and go.
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from flyball_contracts.metrics import WORKLOAD
from flyball_simulator.hardware.site import Floats, Ints

Doubles = NDArray[np.float64]

WAITING = 0.02
"""Utilization of a replica that loads its model or waits for its gang."""


class Moment(NamedTuple):
    """One tick: it covers the ``dt_s`` seconds up to ``t_s`` seconds after the start of the fleet."""

    number: int
    t_s: float
    dt_s: float
    seed: int

    def within(self, t_s: float) -> bool:
        """Whether an instant lies in the tick; the first tick includes everything before it."""
        return t_s <= self.t_s and (self.number == 0 or t_s > self.t_s - self.dt_s)


@dataclass
class Running:
    """The R placed replicas in one tick, and the W workloads.

    ``clock`` [N] is the share of its clock that a GPU runs at (0 when it is dead) under its ``power_limit_w`` [N],
    ``pace`` [R] that of a replica's slowest GPU, ``speed`` [W] that of a workload's slowest replica. ``ready_share``
    [R] is the part of the tick, up to its end, in which a replica was ready, and ``capacity_of`` [W] the sum of pace
    times ready share. ``saving`` replicas write a checkpoint. Loads write the rest, [R]: ``use`` is the share of time
    with a kernel running, ``work`` the share of the GPU's capacity in use, ``io`` the share of checkpoint writing,
    ``report`` float32[R, metrics] the rows of the workload frames, and ``answers`` those of the serving frames, NaN if
    a replica's server reports no tokens.
    """

    workload: Ints
    number: Ints
    ready: NDArray[np.bool_]
    ready_share: Floats
    saving: NDArray[np.bool_]
    pace: Floats
    replicas_of: Ints
    ready_of: Ints
    capacity_of: NDArray[np.float64]
    speed: Floats
    clock: Floats
    power_limit_w: Floats
    use: Floats
    work: Floats
    io: Floats
    report: Floats
    answers: Floats


class Load(Protocol):
    """The behavior of all workloads of one kind."""

    first: int
    count: int

    def step(self, moment: Moment, random: Generator, running: Running, rows: Ints) -> None:
        """Advance one tick and write the rows ``rows`` of ``running``, which are this load's own."""
        ...


READY = WORKLOAD.column("flyball.workload.ready")
PROGRESS = WORKLOAD.column("flyball.workload.progress")
STEP_TIME = WORKLOAD.column("flyball.workload.step.time")


def share_in(period_s: Floats, length_s: Floats, moment: Moment) -> Floats:
    """Share of the tick that lies in the last ``length_s`` of each ``period_s``; exact for any tick length.

    At the start, 40 % of the first period has passed.
    """
    period, length = period_s.astype(np.float64), length_s.astype(np.float64)

    def spent(t_s: float) -> NDArray[np.float64]:
        t = t_s + 0.4 * period
        laps = np.floor(t / period)
        done: NDArray[np.float64] = laps * length + np.maximum(t - laps * period - (period - length), 0.0)
        return done

    return ((spent(moment.t_s) - spent(moment.t_s - moment.dt_s)) / moment.dt_s).astype(np.float32)


def accrued(unsaved_s: Doubles, pace: Doubles, writes: NDArray[np.bool_], every_s: Floats, moment: Moment) -> Doubles:
    """Replica-seconds of work since the last checkpoint, after ``pace`` replicas have worked for the tick.

    Stalled workloads write no checkpoint. Periods are those of :func:`share_in`.
    """
    period = every_s.astype(np.float64)
    t = moment.t_s + 0.4 * period
    since = t - np.floor(t / period) * period
    return np.where(writes & (since < moment.dt_s), pace * since, unsaved_s + pace * moment.dt_s)
