"""Kubernetes HorizontalPodAutoscaler v2, on four metrics.

They are served utilisation, which is limited by the replicas' capacity; arriving work with the backlog; the backlog
alone; and the concurrency of one second, as KEDA provides it. The second and the third are external metrics.

Each 15 s: with target u per replica, N replicas and metric x summed over them, desired is ceil(x / u), or N where
|x / (u N) - 1| <= 0.1. It scales up at once, at most to max(2 N, N + 4), and down to the largest recommendation of the
last 300 s. Without a fresh sample nothing changes. After `autoscaling/v2` defaults of kubernetes/kubernetes.
"""

from flyball_models.scaling.base import Floats, Observation, Policy, held, whole
from flyball_models.scaling.compile import compiled

EVERY_S = 15
LAG_S = 30
EXTERNAL_LAG_S = 15
DRAIN_S = 60.0
"""Seconds in which the backlog is to be drained, if it is added to arriving work."""
TOLERANCE = 0.1
RECOMMENDATIONS = 21
STALE_S = 60.0


def policy(target: float) -> Policy:
    """Return HPA on utilisation with a target share in (0, 1]."""
    return Policy(f"HPA u={target:.3g}", "hpa", EVERY_S, LAG_S, (target,))


def load(target: float) -> Policy:
    """Return HPA on arriving work and backlog, with a target share in (0, 1]."""
    return Policy(f"HPA on load u={target:.3g}", "hpa_load", EVERY_S, EXTERNAL_LAG_S, (target,))


def queue(target: float) -> Policy:
    """Return HPA on the backlog, with a target of seconds of work per replica."""
    return Policy(f"HPA on queue q={target:.3g}s", "hpa_queue", EVERY_S, EXTERNAL_LAG_S, (target,))


def keda(target: float) -> Policy:
    """Return HPA on concurrency, as an external KEDA scaler provides it."""
    return Policy(f"KEDA c={target:.3g}", "keda", EVERY_S, LAG_S, (target,))


@compiled
def recommend(state: Floats, x: float, replicas: float, target: float, stale_s: float) -> float:
    """Return HPA's number; `state` holds its last recommendations."""
    if stale_s > STALE_S:
        return replicas
    wanted = replicas
    if replicas <= 0.0 or abs(x / (target * replicas) - 1.0) > TOLERANCE:
        wanted = whole(x / target)
    top = held(state, 0, RECOMMENDATIONS, wanted)
    if wanted > replicas:
        return min(wanted, max(2.0 * replicas, replicas + 4.0))
    return min(replicas, top)


@compiled
def step(state: Floats, seen: Observation, knobs: Floats) -> float:
    """Return HPA's recommendation, from work served over 60 s."""
    return recommend(state, seen.served_60, seen.ready + seen.pending, knobs[0], seen.stale_s)


@compiled
def step_load(state: Floats, seen: Observation, knobs: Floats) -> float:
    """Return HPA's recommendation, from the work that arrived over 30 s and the backlog, spread over a minute."""
    wanted = seen.work_30 + seen.backlog / DRAIN_S
    return recommend(state, wanted, seen.ready + seen.pending, knobs[0], seen.stale_s)


@compiled
def step_queue(state: Floats, seen: Observation, knobs: Floats) -> float:
    """Return HPA's recommendation, from the backlog."""
    return recommend(state, seen.backlog, seen.ready + seen.pending, knobs[0], seen.stale_s)


@compiled
def step_keda(state: Floats, seen: Observation, knobs: Floats) -> float:
    """Return HPA's recommendation, from the concurrency of one second."""
    return recommend(state, seen.concurrency, seen.ready + seen.pending, knobs[0], seen.stale_s)
