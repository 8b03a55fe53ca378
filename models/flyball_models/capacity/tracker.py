"""All members together: ticks in, at the end of each window the estimates of all workloads out."""

from typing import NamedTuple

import jax

from flyball_models.capacity import historic, hybrid, online, window
from flyball_models.capacity.base import Floats, Limits, Point


class State(NamedTuple):
    """What is kept of each workload; the axis of workloads is the last of all arrays."""

    window: window.State
    online: online.State
    historic: historic.State
    hybrid: hybrid.State


class Found(NamedTuple):
    """What a window ended with: the combination, the windows saturated so far, the proven lower bound, the window."""

    weighed: hybrid.Weighed
    windows: Floats
    proven: Floats
    point: Point


def init(n: int) -> State:
    """Return the state of `n` workloads."""
    return State(window.init(n), online.init(n), historic.init(n), hybrid.init(n))


def resize(state: State, n: int) -> State:
    """Return the state with room for `n` workloads; raises ValueError when there are more."""

    def copied(old: Floats, new: Floats) -> Floats:
        new[..., : old.shape[-1]] = old
        return new

    have = state.online.level.shape[-1]
    if n < have:
        raise ValueError(f"resize: {n} slots cannot hold the {have} in use; pass {have} or more")
    grown: State = jax.tree.map(copied, state, init(n))
    return grown


def add(state: State, seen: Floats) -> State:
    """Take a tick in, [8, N], see :data:`flyball_models.capacity.base.FIELDS`."""
    return state._replace(window=window.add(state.window, seen))


def close(
    state: State, ticks: int, window_s: float, limits: Limits, spec: Floats, static: Floats
) -> tuple[State, Found]:
    """End the windows of `ticks` ticks; `spec` and `static` are what owner and architecture say, [N], NaN unknown."""
    windows, point = window.close(state.window, ticks, window_s)
    curve, found = online.step(state.online, point, limits)
    judged = hybrid.judge(state.hybrid, point.served, found.saturated)
    past, sustained = historic.step(state.historic, point, limits, found.saturated)
    weighed = hybrid.weigh(judged, spec, static, sustained, found.estimate, found.proven)
    judged = judged._replace(last=weighed.values)
    return State(windows, curve, past, judged), Found(weighed, curve.windows, found.proven, point)
