"""The load port: what the replicas of one kind of workload do in a tick.

A load sees all placed replicas and writes only the rows of its own workloads, which are numbered ``first`` to
``first + count - 1`` in the fleet. Loads keep state per workload, never per replica: replicas come and go.
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from flyball_collectors.fleet.site import Floats, Ints
from flyball_contracts.metrics import WORKLOAD

WAITING = 0.02
"""Utilisation of a replica that loads its model or waits for its gang."""


class Moment(NamedTuple):
    """One tick: it covers the ``dt_s`` seconds up to ``t_s`` seconds after the start of the fleet."""

    number: int
    t_s: float
    dt_s: float
    seed: int


@dataclass
class Running:
    """The R placed replicas in one tick, and the W workloads.

    ``speed`` is [W], the pace of each workload's slowest GPU (0 when one is dead). Loads write the rest, [R]: ``use``
    is the share of time with a kernel running, ``work`` how much of the GPU's ability it takes, ``io`` the share of
    checkpoint writing, and ``report`` float32[R, metrics] the rows of the workload frames.
    """

    workload: Ints
    number: Ints
    ready: NDArray[np.bool_]
    replicas_of: Ints
    ready_of: Ints
    speed: Floats
    use: Floats
    work: Floats
    io: Floats
    report: Floats


class Load(Protocol):
    """The behaviour of all workloads of one kind."""

    first: int
    count: int

    def step(self, moment: Moment, random: Generator, running: Running, rows: Ints) -> None:
        """Advance one tick and write the rows ``rows`` of ``running``, those of this load's workloads."""
        ...


READY = WORKLOAD.column("flyball.workload.ready")
PROGRESS = WORKLOAD.column("flyball.workload.progress")
STEP_TIME = WORKLOAD.column("flyball.workload.step.time")


def share_in(period_s: Floats, length_s: Floats, moment: Moment) -> Floats:
    """Share of the tick that lies in the last ``length_s`` of each ``period_s``; exact for any length of tick.

    The first period is 40 % over at the start.
    """
    period, length = period_s.astype(np.float64), length_s.astype(np.float64)

    def spent(t_s: float) -> NDArray[np.float64]:
        t = t_s + 0.4 * period
        laps = np.floor(t / period)
        done: NDArray[np.float64] = laps * length + np.maximum(t - laps * period - (period - length), 0.0)
        return done

    return ((spent(moment.t_s) - spent(moment.t_s - moment.dt_s)) / moment.dt_s).astype(np.float32)
