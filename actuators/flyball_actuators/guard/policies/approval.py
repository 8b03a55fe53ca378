"""Approval by a person."""

from flyball_actuators.guard.state import Context, Verdict, refuse
from flyball_contracts.records import AnyDecision, Check, Migrate, Scale


def unapproved(context: Context) -> Verdict | None:
    """Refuse a decision that needs approval, until an operator approves it or a decision that covers it."""
    policy = next((policy for policy in context.policies if policy.approval), None)
    if policy is None:
        return None
    decision = context.decision
    if any(a.until_ns > context.now_ns and covers(a.decision, decision) for a in context.world.approvals):
        return None
    return refuse(
        "approval",
        f"policy {policy.name!r} takes a person's approval; to let this happen when it is decided again: "
        f"flyball approve {decision.id}",
        policy.name,
    )


def covers(approved: AnyDecision, decision: AnyDecision) -> bool:
    """Whether the approval of one decision covers another: the same action on the same subject, and no more of it.

    For replicas, any number between the number before and the approved one; for anything else, the same values.
    """
    if type(approved) is not type(decision) or (approved.cell, approved.target) != (decision.cell, decision.target):
        return False
    if isinstance(approved, Check) or isinstance(decision, Check):
        return True
    if isinstance(approved, Migrate) or isinstance(decision, Migrate):
        return (
            isinstance(approved, Migrate)
            and isinstance(decision, Migrate)
            and (approved.replica, approved.from_node) == (decision.replica, decision.from_node)
        )
    least, most = sorted((approved.replicas_before, approved.replicas))
    if not least <= decision.replicas <= most:
        return False
    if isinstance(approved, Scale) and isinstance(decision, Scale):
        return _with(approved) == _with(decision)
    return True


def _with(decision: Scale) -> tuple[object, ...]:
    return decision.power_limit_w, decision.resources, decision.mix
