"""Approval by a person."""

from flyball_actuators.guard.state import Context, Verdict, refuse


def unapproved(context: Context) -> Verdict | None:
    """Refuse a decision that needs approval, until an operator approves it or a decision that covers it."""
    policy = next((policy for policy in context.policies if policy.approval), None)
    if policy is None:
        return None
    decision = context.decision
    if any(a.until_ns > context.now_ns and a.decision.covers(decision) for a in context.world.approvals):
        return None
    return refuse(
        "approval",
        f"policy {policy.name!r} takes a person's approval; to let this happen when it is decided again: "
        f"flyball approve {decision.id}",
        policy.name,
    )
