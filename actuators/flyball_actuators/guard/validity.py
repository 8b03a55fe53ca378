"""Checks that a decision is consistent with its subject; runs after the target is known."""

from flyball_actuators.guard.money import pool_size
from flyball_actuators.guard.power import power_limit
from flyball_actuators.guard.state import Context, Verdict, World, refuse
from flyball_contracts.records import AnyDecision


def invalid(context: Context) -> Verdict | None:
    """Refuse a decision that contradicts the workload's specification or itself."""
    decision, world = context.decision, context.world
    if not decision.id:
        problem = "id is empty; a decision must have one, or it could be carried out twice"
    elif decision.target != f"{decision.cell}/{decision.workload}":
        problem = (
            f"target {decision.target!r} is not workload {decision.workload!r} of cell {decision.cell!r}; it must be "
            f"'{decision.cell}/{decision.workload}'"
        )
    elif context.pool is not None:
        problem = pool_size(decision, context.pool)
    else:
        problem = (
            decision.invalid(world.workloads.get(decision.workload))
            or power_limit(decision, world)
            or _drained(decision, world)
            or _owned_by_other(decision, world)
        )
    return refuse("invalid", problem) if problem else None


def _drained(decision: AnyDecision, world: World) -> str:
    node = decision.starts_on(None, keeps_to_node=True)
    if node and not world.nodes[node].schedulable:
        return f"to_node {node!r} is drained; choose another, or leave it empty"
    return ""


def _owned_by_other(decision: AnyDecision, world: World) -> str:
    for replica in decision.named_replicas:
        owner = world.owner(decision.cell, decision.workload, replica)
        if owner:
            return f"replica {replica!r} belongs to workload {owner!r}, not {decision.workload!r}; name one of its own"
    return ""
