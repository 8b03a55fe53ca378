"""A planner on two time scales, in the manner of NVIDIA Dynamo's.

Every 180 s it sets a floor from throughput: ceil(mean work of 180 s / k), the constant predictor. Every 5 s, while
nothing is pending, it adds a replica if the queue takes more than 1 s to drain. It removes one if the queue takes less
than 0.1 s, the load on one replica less would be below 0.8, and the floor allows it. One action at a time.
"""

import math

from flyball_models.scaling.base import Floats, Observation, Policy, whole
from flyball_models.scaling.compile import compiled

EVERY_S = 5
LAG_S = 0
FLOOR_S = 180.0
LATE_S = 1.0
EASY_S = 0.1
EASY_LOAD = 0.8
STALE_S = 60.0


def policy(target: float) -> Policy:
    """Return the planner with the work that one replica carries in its throughput plan."""
    return Policy(f"Dynamo-like k={target:.3g}", "dynamo", EVERY_S, LAG_S, (target,))


@compiled
def step(state: Floats, seen: Observation, knobs: Floats) -> float:
    """Return the planner's recommendation. ``state[0:2]``: window of the last floor, from 1, and the floor."""
    n = seen.ready + seen.pending
    if seen.stale_s > STALE_S:
        return n
    window = math.floor(seen.t_s / FLOOR_S) + 1.0
    if window != state[0]:
        state[0], state[1] = window, whole(seen.work_180 / knobs[0])
    floor = state[1]
    if n < floor:
        return float(floor)
    if seen.pending > 0.0 or seen.ready <= 0.0:
        return n
    wait_s = seen.backlog / seen.ready
    if wait_s > LATE_S:
        return n + 1.0
    if seen.ready > 1.0 and wait_s < EASY_S and n - 1.0 >= floor:
        load = seen.served_30 / (seen.ready - 1.0)
        if load < EASY_LOAD:
            return n - 1.0
    return n
