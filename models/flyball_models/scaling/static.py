"""A fixed number of replicas."""

from flyball_models.scaling.base import Floats, Observation, Policy
from flyball_models.scaling.compile import compiled


def policy(replicas: float) -> Policy:
    """Return the policy that always requests `replicas`."""
    return Policy(f"static n={replicas:.0f}", "static", 60, 0, (replicas,))


@compiled
def step(state: Floats, seen: Observation, knobs: Floats) -> float:
    """Return the constant number."""
    return float(knobs[0])
