"""Interface of all policies: observation, state, and parameters.

A policy is a function ``step(state, seen, knobs) -> desired`` that is called every ``every_s`` seconds. ``seen`` is an
:class:`Observation`, ``knobs`` a row of float64, ``state`` an array of :data:`STATE` float64 that starts as zeros and
is the step's own: it is updated in place. The result is the number of replicas that should exist, ready or ordered. The
same functions run in the backtest's compiled loop and one call at a time.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flyball_models.scaling.compile import compiled

STATE = 8192
"""Floats of a policy's state; :mod:`flyball_models.scaling.shadow_selection` needs most of them, others few."""
KNOBS = 14
MOST_COUNT = 2.0**53
Floats = NDArray[np.float64]


class Observation(NamedTuple):
    """Observation of a policy at time ``t_s``; work and concurrency are in units of one replica's capacity.

    ``ready`` and ``pending`` are current, everything else is as old as the policy's telemetry lag: mean arrived work
    over 5, 30 and 180 s, mean served work over 30 and 60 s, concurrency of the last second and its means over 6 and 60
    s, and the backlog in replica seconds. ``stale_s`` is the age of the newest sample beyond the lag. ``upper`` and
    ``lower`` bound the need that the forecast expects (replicas, NaN without one) and ``present`` is the need of the
    last full minute.
    """

    t_s: float
    ready: float
    pending: float
    work_5: float
    work_30: float
    work_180: float
    served_30: float
    served_60: float
    concurrency: float
    concurrency_6: float
    concurrency_60: float
    backlog: float
    stale_s: float
    upper: float
    lower: float
    present: float


class Policy(NamedTuple):
    """One policy with its parameters; ``kind`` is its row in :data:`flyball_models.scaling.table.KINDS`."""

    name: str
    kind: str
    every_s: int
    lag_s: int
    knobs: tuple[float, ...] = ()

    def row(self) -> Floats:
        """Parameters in the format of the step, float64 [KNOBS]."""
        if len(self.knobs) > KNOBS:
            raise ValueError(f"{self.name}: has {len(self.knobs)} knobs; at most {KNOBS} fit")
        row = np.zeros(KNOBS)
        row[: len(self.knobs)] = self.knobs
        return row


def fresh() -> Floats:
    """State of a policy without data."""
    return np.zeros(STATE)


@compiled
def whole(x: float) -> float:
    """Return x rounded up, an exact fit not raised by rounding errors."""
    return float(math.ceil(x - 1e-9))


@compiled
def counted(x: float) -> int:
    """Return a count kept as a float; 0 if it is no valid count, as in a damaged state: loops to it might not end."""
    return int(x) if 0.0 <= x < MOST_COUNT else 0


@compiled
def held(state: Floats, first: int, length: int, value: float) -> float:
    """Push `value` into a ring of `length` at ``state[first + 1]``; return the maximum of the ring.

    ``state[first]`` counts the pushes. Slots that were never filled do not count.
    """
    count = int(state[first])
    state[first + 1 + count % length] = value
    state[first] = count + 1
    top = value
    for i in range(min(count + 1, length)):
        top = max(top, state[first + 1 + i])
    return top
