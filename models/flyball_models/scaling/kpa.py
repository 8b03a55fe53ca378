"""Knative's pod autoscaler, plain and with a scale-down delay.

Each 2 s, with target k, R ready replicas and mean concurrency C over 60 s (stable) and 6 s (panic): stable = ceil(C60 /
k), panic = ceil(C6 / k). At panic / R >= 2 it panics: then it requests the running maximum of both, until 60 s have
passed without that condition. The recommendation lies in [floor(R / 2), 1000 R]. With a delay it is the largest one of
the last 600 s. After `pkg/autoscaler/scaling` of knative/serving.
"""

import math

from flyball_models.scaling.base import Floats, Observation, Policy, held, whole
from flyball_models.scaling.compile import compiled

EVERY_S = 2
LAG_S = 2
STABLE_S = 60.0
PANIC_RATIO = 2.0
MOST_UP = 1000.0
GRID_S = 15.0
HELD = 41
"""Recommendations on a 15 s grid that span 600 s."""
STALE_S = 60.0


def policy(target: float) -> Policy:
    """Return KPA with a target concurrency per replica."""
    return Policy(f"KPA k={target:.3g}", "kpa", EVERY_S, LAG_S, (target,))


def policy_held(target: float) -> Policy:
    """Return KPA that holds the largest recommendation of 600 s."""
    return Policy(f"KPA+600s k={target:.3g}", "kpa_held", EVERY_S, LAG_S, (target,))


@compiled
def desired(state: Floats, seen: Observation, target: float) -> float:
    """Return KPA's number.

    ``state[0:3]``: panics, since when, running maximum.
    """
    ready = max(1.0, seen.ready)
    stable = whole(seen.concurrency_60 / target)
    panic = whole(seen.concurrency_6 / target)
    over = panic / ready >= PANIC_RATIO
    least, most = math.floor(seen.ready / 2.0), MOST_UP * ready
    stable = min(max(stable, least), most)
    panic = min(max(panic, least), most)
    if over:
        if state[0] == 0.0:
            state[2] = 0.0
        state[0], state[1] = 1.0, seen.t_s
    elif state[0] > 0.0 and seen.t_s - state[1] > STABLE_S:
        state[0] = 0.0
    if state[0] > 0.0:
        state[2] = max(state[2], stable, panic)
        return float(state[2])
    return stable


@compiled
def hold(state: Floats, first: int, t_s: float, wanted: float) -> float:
    """Return the largest recommendation of the last 600 s, kept on a 15 s grid from ``state[first]`` on.

    ``state[first]`` is the slot that is being filled; its maximum so far and that of the slots before follow.
    """
    slot = math.floor(t_s / GRID_S)
    if slot != state[first]:
        state[first + 2] = held(state, first + 3, HELD - 1, state[first + 1])
        state[first], state[first + 1] = slot, wanted
    else:
        state[first + 1] = max(state[first + 1], wanted)
    return float(max(state[first + 1], state[first + 2]))


@compiled
def step(state: Floats, seen: Observation, knobs: Floats) -> float:
    """Return KPA's recommendation; the existing replicas if the samples are stale."""
    if seen.stale_s > STALE_S:
        return seen.ready + seen.pending
    return desired(state, seen, knobs[0])


@compiled
def step_held(state: Floats, seen: Observation, knobs: Floats) -> float:
    """Return the largest recommendation of 600 s."""
    if seen.stale_s > STALE_S:
        return seen.ready + seen.pending
    return hold(state, 4, seen.t_s, desired(state, seen, knobs[0]))
