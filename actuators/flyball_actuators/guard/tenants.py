"""No two tenants on one GPU, unless MIG divides it: they share its memory, and one can starve or crash the other."""

from flyball_actuators.guard.state import Context, Verdict, World, refuse
from flyball_contracts.records import Check, Migrate, Preempt


def tenant_mixed(context: Context) -> Verdict | None:
    """Refuse a decision that may start a replica on an undivided GPU beside another tenant's, by the inventories.

    GPUs are shared if several replicas are on one, or if a workload requests a share of one. A workload that requests a
    share may be placed on any such GPU of its cell, or of the named node; one that requests whole GPUs only on one of a
    named node that several replicas share. An undeclared workload on a shared GPU counts as another tenant's.
    """
    decision, world = context.decision, context.world
    if context.pool is not None or isinstance(decision, Check | Preempt):
        return None
    if isinstance(decision, Migrate):
        nodes = [decision.to_node] if decision.to_node else _nodes(world, decision.cell)
        named = bool(decision.to_node)
    else:
        more = [(decision.replicas, decision.replicas_before), *((p.replicas, p.replicas_before) for p in decision.mix)]
        nodes = _nodes(world, decision.cell) if any(after > before for after, before in more) else []
        named = False
    spec = world.workloads[decision.workload]
    for node in nodes:
        for gpu in world.gpus.get(node, ()):
            several = len(gpu) > 1
            if not (several and named if _whole(world, decision.workload) else several or not _whole(world, *gpu)):
                continue
            other = next((w for w in gpu if w != decision.workload and world.tenant(w) != spec.tenant), None)
            if other is not None:
                return refuse(
                    "tenant_mixed",
                    f"workload {other!r} of {_whose(world, other)} shares a GPU of node {node!r} that MIG does not "
                    f"divide, and a replica of {decision.workload!r} of tenant {spec.tenant!r} may come beside it; "
                    "divide the GPU, keep the tenants on nodes of their own, or declare both as one tenant's",
                )
    return None


def _nodes(world: World, cell: str) -> list[str]:
    return [name for name, node in world.nodes.items() if node.cell == cell and node.schedulable]


def _whole(world: World, *workloads: str) -> bool:
    """Whether all of them request whole GPUs; an undeclared one does."""
    specs = (world.workloads.get(workload) for workload in workloads)
    return all(spec is None or float(spec.gpus_per_replica).is_integer() for spec in specs)


def _whose(world: World, workload: str) -> str:
    tenant = world.tenant(workload)
    return f"tenant {tenant!r}" if tenant else "an unknown tenant"
