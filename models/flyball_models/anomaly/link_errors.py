"""Detects links with persistent errors by a leaky sum in which no single report counts for much.

A link that retrains has one burst of errors and is healthy; a failing cable, riser or retimer has errors again and
again. So a report counts as at most ten errors, and a link raises an alarm after enough recent errors. The rule needs
no peers and no baseline: healthy links have almost no errors, whatever runs.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

WINDOW_S = 300.0
MOST_OF_ONE = 10.0
LIMIT = 24.0
"""Errors (at most ten per report) that raise an alarm: three bursts in short succession, or one error every 10 s."""
Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]


class State(NamedTuple):
    """Float64 [2, N], NVLink and PCIe, as of ``at_s`` [1].

    ``errors`` are all in the window, ``weight`` is their counted part, and ``since_s`` the time when they began.
    """

    errors: Floats
    weight: Floats
    since_s: Floats
    at_s: Floats


def init(n: int) -> State:
    """Return the state of ``n`` devices without errors."""
    return State(np.zeros((2, n)), np.zeros((2, n)), np.full((2, n), np.nan), np.zeros(1))


def step(state: State, new: Floats, now_s: float, period_s: float) -> tuple[State, Bools]:
    """Add the errors of a tick, [2, N], NaN if unknown; return which devices raise an alarm.

    Without recent errors, nothing is computed.
    """
    any_ = new > 0
    if not any_.any():
        return state, np.zeros_like(any_)
    kept = float(np.exp(-max(now_s - float(state.at_s[0]), 0.0) / WINDOW_S))
    errors, weight = kept * state.errors, kept * state.weight
    since_s = np.where(any_ & (weight < 1.0), now_s, state.since_s)
    errors, weight = errors + np.where(any_, new, 0.0), weight + np.where(any_, np.minimum(new, MOST_OF_ONE), 0.0)
    return State(errors, weight, since_s, np.array([now_s])), any_ & (weight >= enough(period_s))


def enough(period_s: float) -> float:
    """Return the errors that raise an alarm: LIMIT or, if less, nine tenths of three full reports in a row."""
    d = float(np.exp(-period_s / WINDOW_S))
    return min(LIMIT, 0.9 * MOST_OF_ONE * (1.0 + d + d * d))
