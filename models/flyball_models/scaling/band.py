"""Policies based on bounds of the future need: the oracle, the engine's sizer and the plain follower.

The bounds (replicas, before rounding) come with the observation: `upper` is the maximum need once a replica ordered now
is ready, `lower` the maximum from now until one ordered a little later would be. Between them the number stays, so
hysteresis follows from the lead time.
"""

import math

from flyball_models.scaling.base import Floats, Observation, Policy, whole
from flyball_models.scaling.compile import compiled

EVERY_S = 15
LAG_S = 15
STALE_S = 60.0
DRAIN_S = 60.0


def follow(name: str, factor: float) -> Policy:
    """Return the policy that requests `factor` times `upper` at all times (a schedule)."""
    return Policy(f"{name} m={factor:.3g}", "follow", EVERY_S, 0, (factor,))


def oracle(factor: float, label: str = "") -> Policy:
    """Return the band on the true future, without a reactive term."""
    return Policy(f"oracle-A m={factor:.3g}{label}", "oracle", EVERY_S, LAG_S, (factor,))


def engine(target: float, tolerance: float, most_in: float, hold_s: float, cold_start_s: float, label: str) -> Policy:
    """Return the engine's sizer: bounds are quantiles of work, a replica carries `target` of its capacity."""
    knobs = (target, tolerance, most_in, hold_s, max(DRAIN_S, cold_start_s))
    return Policy(f"flyball engine target={target:.3g}{label}", "engine", EVERY_S, LAG_S, knobs)


@compiled
def step_follow(state: Floats, seen: Observation, knobs: Floats) -> float:
    """Return the bound."""
    if math.isnan(seen.upper):
        return seen.ready + seen.pending
    return whole(knobs[0] * seen.upper)


@compiled
def clip(n: float, up: float, down: float) -> float:
    """Return n moved into up..down, up first; a NaN side is ignored."""
    if not math.isnan(down):
        n = min(n, down)
    return n if math.isnan(up) else max(n, up)


@compiled
def step_oracle(state: Floats, seen: Observation, knobs: Floats) -> float:
    """Return the band alone."""
    return clip(seen.ready + seen.pending, whole(knobs[0] * seen.upper), whole(knobs[0] * seen.lower))


@compiled
def step_engine(state: Floats, seen: Observation, knobs: Floats) -> float:
    """Return the number of the engine's sizer and gate.

    ``state[0:2]``: direction and time of the last change. An untrusted forecast is a NaN bound: then present demand
    alone can raise the number, and nothing lowers it.
    """
    n = seen.ready + seen.pending
    if seen.stale_s > STALE_S:
        return n
    now = seen.present + seen.backlog / knobs[4]
    up = now if math.isnan(seen.upper) else max(now, seen.upper)
    down = seen.lower if math.isnan(seen.lower) else whole(max(now, seen.lower) / knobs[0])
    wanted = clip(n, whole(up / knobs[0]), down)
    if abs(wanted - n) <= knobs[1] * n and seen.backlog <= 0.0:
        return n
    wanted = max(wanted, n - max(1.0, math.floor(knobs[2] * n)))
    turn = 1.0 if wanted > n else -1.0
    if wanted == n or (state[0] == -turn and seen.t_s - state[1] < knobs[3]):
        return n
    state[0], state[1] = turn, seen.t_s
    return float(wanted)
