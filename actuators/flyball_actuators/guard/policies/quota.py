"""Quota of a tenant."""

from flyball_actuators.guard.state import Context, Verdict, World, refuse, starts_from
from flyball_contracts.records import Check, Migrate


def over_quota(context: Context) -> Verdict | None:
    """Refuse a decision that adds replicas if its tenant would then hold more than a policy's ``quota``.

    A tenant holds what the inventories show; for the decision's own workload, what the decision requests.
    """
    decision, world = context.decision, context.world
    quotas = [(policy.name, policy.quota) for policy in context.policies if policy.quota is not None]
    if not quotas or isinstance(decision, Migrate | Check) or decision.replicas <= starts_from(context):
        return None
    if context.pool is not None:  # new machines belong to no tenant yet
        return None
    tenant = world.tenant(decision.workload)
    replicas, gpus = _held(world, decision.cell, tenant, decision.workload)
    replicas, gpus = replicas + decision.replicas, gpus + decision.replicas * _gpus(world, decision.workload)
    for name, quota in quotas:
        for what, most, held in (("replicas", quota.replicas, replicas), ("GPUs", quota.gpus, gpus)):
            if most is not None and held > most:
                return refuse(
                    "quota",
                    f"policy {name!r}: tenant {tenant!r} would hold {held:g} {what} in cell {decision.cell!r} and may "
                    f"hold {most:g}; scale something else of it in, or raise the quota",
                    name,
                )
    return None


def _held(world: World, cell: str, tenant: str, except_workload: str) -> tuple[int, float]:
    """Replicas and GPUs of a tenant's workloads in a cell, except workload ``except_workload``."""
    others = {
        workload: len(replicas)
        for workload, replicas in world.placed.get(cell, {}).items()
        if workload != except_workload and world.tenant(workload) == tenant
    }
    return sum(others.values()), sum(count * _gpus(world, workload) for workload, count in others.items())


def _gpus(world: World, workload: str) -> float:
    spec = world.workloads.get(workload)
    return 1.0 if spec is None else spec.gpus_per_replica
