"""No two tenants on one GPU, unless MIG divides it: they share its memory, and one can starve or crash the other."""

from collections.abc import Iterator

from flyball_actuators.guard.limits import recent_of
from flyball_actuators.guard.state import Context, Gpu, Verdict, refuse
from flyball_actuators.guard.sums import may_come


def tenant_mixed(context: Context) -> Verdict | None:
    """Refuse a decision that may start a replica on an undivided GPU beside another tenant's.

    A replica that requests a share of a GPU may come to a GPU that is free or shared, that several workloads use, or
    whose only workload requests a share, too. A replica that requests whole GPUs may come only to a shared GPU and, on
    a named node, also to a GPU that several workloads use. If no node is named, or the platform may choose another, any
    node of the cell is possible. Other tenants' replicas are those in the inventories, and those that decisions of the
    last ``UNSEEN_S`` seconds may start. An undeclared workload counts as another tenant's.
    """
    named, world = context.starts_on, context.world
    if context.pool is not None or named is None or not world.summed().gpus(context.decision.workload):
        return None
    found = _beside_shown_on(context, named) if named else _beside_shown(context)
    return next(found, None) or next(_beside_started(context, named), None)


def _beside_shown(context: Context) -> Iterator[Verdict]:
    """Refusals because of other tenants' replicas on GPUs of any node of the cell."""
    world, mine, takes_part = context.world, context.world.tenant(context.decision.workload), _takes_part(context)
    for spot, nodes in world.summed().spots.get(context.decision.cell, {}).items():
        if spot.tenant not in (None, mine) and (spot.shared or takes_part):
            for node in nodes:
                yield from _beside_shown_on(context, node)


def _beside_shown_on(context: Context, node: str) -> Iterator[Verdict]:
    named = context.starts_on
    for gpu in context.world.gpus.get(node, ()):
        if _may_come(context, gpu) or (named and len(gpu.workloads) > 1):
            for other in gpu.workloads:
                if _is_of_another(context, other):
                    yield _refusal(context, f"workload {other!r} of {_whose(context, other)} shares", node, "divide")


def _beside_started(context: Context, named: str) -> Iterator[Verdict]:
    """Refusals because of other tenants' replicas that recent decisions may start on a GPU the replica may come to."""
    cell, world, takes_part = context.decision.cell, context.world, _takes_part(context)
    spots = [spot for spot in world.summed().spots.get(cell, {}) if spot.shared or takes_part]
    if not (spots or named):
        return
    mine, recent = world.tenant(context.decision.workload), recent_of(context)
    together: dict[tuple[str, float, str | None], str] = {}
    for tenant, starts in recent.starts.items():
        for theirs, gpus in starts:
            if tenant != mine and gpus and (node := _together_on(context, named, theirs, not gpus.is_integer())):
                together[tenant, gpus, theirs] = node
    for grant in recent.grants if together else ():
        if node := together.get((*world.summed().of(grant.workload), grant.starts), ""):
            whose = f"{grant.workload!r} of {_whose(context, grant.workload)}"
            who = f"a replica of {whose}, by decision {grant.decision}, may come to"
            yield _refusal(context, who, node, "wait until the inventories show it, divide")


def _together_on(context: Context, named: str, theirs: str, they_take_part: bool) -> str:
    """A node with a GPU to which both replicas may come, empty if there is none; an unnamed node may be any."""
    cell, world = context.decision.cell, context.world
    if named and theirs and named != theirs:
        return ""
    if node := named or theirs:
        of = world.nodes.get(node)
        if named or (of is not None and of.cell == cell and of.schedulable):
            for gpu in world.gpus.get(node, ()):
                mine = _may_come(context, gpu) or (named and len(gpu.workloads) > 1)
                if mine and may_come(gpu, they_take_part, world.summed().declared):
                    return node
        return ""
    both = _takes_part(context) and they_take_part
    found = (nodes for spot, nodes in world.summed().spots.get(cell, {}).items() if spot.shared or both)
    return next((node for nodes in found for node in nodes), "")


def _refusal(context: Context, who: str, node: str, remedy: str) -> Verdict:
    decision, tenant = context.decision, context.world.tenant(context.decision.workload)
    return refuse(
        "tenant_mixed",
        f"{who} a GPU of node {node!r} that MIG does not divide, and a replica of {decision.workload!r} of tenant "
        f"{tenant!r} may come beside it; {remedy} the GPU, keep the tenants on nodes of their own, or declare both as "
        "one tenant's",
    )


def _may_come(context: Context, gpu: Gpu) -> bool:
    return may_come(gpu, _takes_part(context), context.world.summed().declared)


def _takes_part(context: Context) -> bool:
    """Whether a replica of the decision's workload requests a part of a GPU."""
    return not context.world.summed().gpus(context.decision.workload).is_integer()


def _is_of_another(context: Context, other: str) -> bool:
    workload, world = context.decision.workload, context.world
    return other != workload and world.tenant(other) != world.tenant(workload)


def _whose(context: Context, workload: str) -> str:
    tenant = context.world.tenant(workload)
    return f"tenant {tenant!r}" if tenant else "an unknown tenant"
