"""Kubernetes HorizontalPodAutoscaler v2, on utilisation or (as KEDA feeds it) on the concurrency of one second.

Each 15 s: with target u per replica, N replicas and metric x summed over them, desired is ceil(x / u), or N where
|x / (u N) - 1| <= 0.1. Up at once, at most to max(2 N, N + 4); down to the largest recommendation of the last 300 s.
Without a fresh sample nothing changes. After `autoscaling/v2` defaults of kubernetes/kubernetes.
"""

from flyball_models.scaling.base import Floats, Observation, Policy, held, whole
from flyball_models.scaling.compile import compiled

EVERY_S = 15
LAG_S = 30
TOLERANCE = 0.1
RECOMMENDATIONS = 21
STALE_S = 60.0


def policy(target: float) -> Policy:
    """Return HPA on utilisation with a target share in (0, 1]."""
    return Policy(f"HPA u={target:.3g}", "hpa", EVERY_S, LAG_S, (target,))


def keda(target: float) -> Policy:
    """Return HPA on concurrency, as an external KEDA scaler feeds it."""
    return Policy(f"KEDA c={target:.3g}", "keda", EVERY_S, LAG_S, (target,))


@compiled
def recommend(state: Floats, x: float, replicas: float, target: float, stale_s: float) -> float:
    """Return the number that HPA asks for; `state` holds its last recommendations."""
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
    """Return HPA's wish, from work served over 60 s."""
    return recommend(state, seen.served_60, seen.ready + seen.pending, knobs[0], seen.stale_s)


@compiled
def step_keda(state: Floats, seen: Observation, knobs: Floats) -> float:
    """Return HPA's wish, from the concurrency of one second."""
    return recommend(state, seen.concurrency, seen.ready + seen.pending, knobs[0], seen.stale_s)
