"""Quota of a tenant."""

from flyball_actuators.guard.limits import recent_of
from flyball_actuators.guard.state import Context, Verdict, refuse
from flyball_actuators.guard.sums import UNDECLARED
from flyball_contracts.records import SetsReplicas

ROUNDING = 1e-6
"""Sums of parts of GPUs are exact to far less than this."""


def over_quota(context: Context) -> Verdict | None:
    """Refuse a decision that adds replicas if its tenant would then hold more than a policy's ``quota``.

    A tenant holds what the inventories show, or what was let through in the last ``UNSEEN_S`` seconds where that is
    more. A workload of which they show fewer than so long ago, though no decision took them, keeps what it had. For the
    decision's own workload it is what the decision requests.
    """
    decision, world = context.decision, context.world
    quotas = [(policy.name, policy.quota) for policy in context.policies if policy.quota is not None]
    if not quotas or context.pool is not None:  # new machines belong to no tenant yet
        return None
    if not isinstance(decision, SetsReplicas) or decision.replicas <= decision.starts_from(context.observed):
        return None
    tenant = world.tenant(decision.workload)
    replicas, gpus = _held(context, tenant)
    replicas, gpus = (
        replicas + decision.replicas,
        gpus + decision.replicas * world.summed().gpus(decision.workload),
    )
    for name, quota in quotas:
        for what, most, held in (("replicas", quota.replicas, replicas), ("GPUs", quota.gpus, gpus)):
            if most is not None and held > most + ROUNDING:
                return refuse(
                    "quota",
                    f"policy {name!r}: tenant {tenant!r} would hold {held:g} {what} in cell {decision.cell!r} and may "
                    f"hold {most:g}; scale something else of it in, or raise the quota",
                    name,
                )
    return None


def _held(context: Context, tenant: str) -> tuple[int, float]:
    """Replicas and GPUs of a tenant's workloads in the decision's cell, except those of its own workload."""
    world, cell, own = context.world, context.decision.cell, context.decision.workload
    sums, placed = world.summed(), world.placed.get(cell, {})
    declared = sums.declared  # looked up here, as it is for hundreds of grants
    fell = {name: most for (of, name), most in world.held.items() if of == cell and sums.tenant(name) == tenant}
    granted, shown = recent_of(context).replicas.get(tenant, {}), len(placed.get(own, ()))
    replicas, gpus = sums.held.get(cell, {}).get(tenant, (0, 0.0))
    replicas, gpus = replicas - shown, gpus - shown * sums.gpus(own)
    for workload, count in (fell | granted).items():
        if (more := count - len(placed.get(workload, ()))) > 0 and workload != own:
            replicas, gpus = replicas + more, gpus + more * declared.get(workload, UNDECLARED)[1]
    return replicas, gpus
