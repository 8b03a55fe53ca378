"""Workloads that are never acted on."""

from flyball_actuators.guard.state import Context, Verdict, refuse


def protected(context: Context) -> Verdict | None:
    """Refuse a decision that a policy with ``protect`` matches."""
    policy = next((policy for policy in context.policies if policy.protect), None)
    if policy is None:
        return None
    return refuse(
        "protected",
        f"policy {policy.name!r} protects workload {context.decision.workload!r}; act on it by hand, or narrow the "
        "policy in actuator.policies",
        policy.name,
    )
