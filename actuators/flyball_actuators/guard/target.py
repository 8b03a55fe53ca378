"""Target checks: it is known, in the decision's cell, and allowed."""

from flyball_actuators.guard.scope import of_other_tenant
from flyball_actuators.guard.state import Context, Verdict, World, refuse
from flyball_contracts.records.subjects import covered, pool_of


def unknown_target(context: Context) -> Verdict | None:
    """Refuse a workload without a specification, a node without an inventory, or either in another cell."""
    decision, world = context.decision, context.world
    pool = pool_of(decision.workload)
    if pool:
        if context.pool is not None:
            return None
        return refuse(
            "unknown_target",
            f"cell {decision.cell!r} has no pool {pool!r}; name it in pools of the cell's entry in actuator.platforms",
        )
    spec = world.workloads.get(decision.workload)
    if decision.about == "workload" and (spec is None or spec.removed):
        return refuse(
            "unknown_target", f"workload {decision.workload!r} has no specification; publish its WorkloadSpec first"
        )
    if spec is not None and spec.cell != decision.cell:
        return refuse(
            "unknown_target",
            f"workload {decision.workload!r} belongs to cell {spec.cell!r}, the decision to {decision.cell!r}; "
            "only its own cell may decide over it",
        )
    nodes = decision.named_nodes
    return next((verdict for node in nodes if (verdict := _unknown_node(node, decision.cell, world))), None)


def _unknown_node(node: str, cell: str, world: World) -> Verdict | None:
    known = world.nodes.get(node)
    if known is None:
        return refuse("unknown_target", f"node {node!r} has no inventory; start its agent first")
    if known.cell != cell:
        return refuse(
            "unknown_target",
            f"node {node!r} belongs to cell {known.cell!r}, the decision to {cell!r}; name a node of its own cell",
        )
    return None


def not_allowed(context: Context) -> Verdict | None:
    """Refuse a workload that no pattern of ``actuator.allow`` covers.

    Pools and nodes need patterns of their own: a pattern for workloads never covers them.
    """
    workload = context.decision.workload
    if context.config.allow is None or covered(workload, context.config.allow):
        return None
    patterns = ", ".join(context.config.allow) or "nothing"
    return refuse("not_allowed", f"actuator.allow covers {patterns}, not {workload!r}; add a pattern to allow it")


def out_of_tenant(context: Context) -> Verdict | None:
    """Refuse a decision about a workload whose tenant is by now one for which the decision's key may not sign."""
    if context.signature is None:
        return None
    tenant = context.world.tenant(context.decision.workload)
    problem = of_other_tenant(context.signature, context.decision, tenant)
    return refuse("not_allowed", problem) if problem else None
