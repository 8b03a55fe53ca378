"""All estimators together: they take ticks, and estimate all workloads at the end of each window."""

from typing import NamedTuple

from flyball_models.capacity import historic, hybrid, online, window
from flyball_models.capacity.base import Floats, Limits, Point
from flyball_models.capacity.hybrid import Combined


class State(NamedTuple):
    """State of each workload, the last axis of all arrays; ``latest`` is the current estimate."""

    window: window.State
    online: online.State
    historic: historic.State
    hybrid: hybrid.State
    latest: Combined


def init(n: int) -> State:
    """Return the state of `n` workloads."""
    return State(window.init(n), online.init(n), historic.init(n), hybrid.init(n), hybrid.nothing(n))


def add(state: State, seen: Floats) -> State:
    """Add a tick, [F, N], see :data:`flyball_models.capacity.base.FIELDS`, or several, [T, F, N]."""
    return state._replace(window=window.add(state.window, seen))


def close(
    state: State, ticks: int, window_s: float, limits: Limits, spec: Floats, static: Floats
) -> tuple[State, Point]:
    """End the windows, which had `ticks` ticks in `window_s` seconds; also return their content.

    `spec` and `static` are the values of the owners and the architectures, [N], NaN if there are none.
    """
    windows, point = window.close(state.window, ticks, window_s)
    curve, found = online.step(state.online, point, limits)
    judged = hybrid.judge(state.hybrid, state.latest.values, point.served, found.saturated)
    past, sustained = historic.step(state.historic, point, limits, found.saturated)
    weighed = hybrid.weigh(judged, spec, static, sustained, found.estimate, found.proven)
    return State(windows, curve, past, judged, weighed), point
