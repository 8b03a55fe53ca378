"""Approval by a person."""

import math

from flyball_actuators.guard.state import Context, Verdict, refuse
from flyball_contracts.records import AnyDecision, Check, Migrate, Preempt, Scale


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

    All values must be the same, but for these: a number of replicas between the one before and the approved one, where
    the replicas to stop, if they are named, are among the approved ones; a smaller batch; the attempt of a check.
    """
    if type(approved) is not type(decision) or _values(approved) != _values(decision):
        return False
    if not isinstance(approved, Scale | Preempt) or not isinstance(decision, Scale | Preempt):
        return True
    least, most = sorted((approved.replicas_before, approved.replicas))
    if not least <= decision.replicas <= most or _batch(decision) > _batch(approved):
        return False
    if decision.replicas == approved.replicas:
        return set(decision.victims) == set(approved.victims)
    going = decision.replicas_before - decision.replicas
    return not approved.victims or (len(decision.victims) == going and set(decision.victims) <= set(approved.victims))


def _values(decision: AnyDecision) -> tuple[object, ...]:
    """What a decision does, apart from its number of replicas."""
    what: tuple[object, ...]
    if isinstance(decision, Check):
        what = (decision.node, decision.devices)
    elif isinstance(decision, Migrate):
        what = (decision.replica, decision.from_node, decision.from_device, decision.to_node)
    elif isinstance(decision, Preempt):
        what = (decision.until_ns, decision.checkpoint, decision.beneficiary)
    else:
        what = (decision.power_limit_w, decision.resources, decision.resources_before, decision.mix)
    return (decision.cell, decision.target, *what)


def _batch(decision: Scale | Preempt) -> float:
    return decision.batch_size or math.inf if isinstance(decision, Scale) else math.inf
