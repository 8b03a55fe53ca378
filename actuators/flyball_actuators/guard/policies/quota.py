"""Quota of a tenant."""

from flyball_actuators.guard.limits import UNSEEN_S, within
from flyball_actuators.guard.state import Context, Verdict, World, refuse, starts_from
from flyball_contracts.records import Check, Migrate


def over_quota(context: Context) -> Verdict | None:
    """Refuse a decision that adds replicas if its tenant would then hold more than a policy's ``quota``.

    A tenant holds what the inventories show, or what was let through in the last ``UNSEEN_S`` seconds where that is
    more. A workload of which they show fewer than so long ago, though no decision took them, keeps what it had. For the
    decision's own workload it is what the decision requests.
    """
    decision, world = context.decision, context.world
    quotas = [(policy.name, policy.quota) for policy in context.policies if policy.quota is not None]
    if not quotas or isinstance(decision, Migrate | Check) or decision.replicas <= starts_from(context):
        return None
    if context.pool is not None:  # new machines belong to no tenant yet
        return None
    tenant = world.tenant(decision.workload)
    replicas, gpus = _held(context, tenant)
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


def _held(context: Context, tenant: str) -> tuple[int, float]:
    """Replicas and GPUs of a tenant's workloads in the decision's cell, except those of its own workload."""
    world, cell = context.world, context.decision.cell
    held = {name: len(replicas) for name, replicas in world.placed.get(cell, {}).items()}
    granted = within(context.state.grants.get(cell, ()), context.state.clock(cell, context.now_ns), UNSEEN_S)
    newest = {grant.workload: grant.replicas for grant in granted if grant.replicas is not None}
    fell = {workload: most for (of, workload), most in world.held.items() if of == cell}
    for workload, replicas in (fell | newest).items():
        held[workload] = max(replicas, held.get(workload, 0))
    others = {
        workload: count
        for workload, count in held.items()
        if workload != context.decision.workload and world.tenant(workload) == tenant
    }
    return sum(others.values()), sum(count * _gpus(world, workload) for workload, count in others.items())


def _gpus(world: World, workload: str) -> float:
    spec = world.workloads.get(workload)
    return 1.0 if spec is None else spec.gpus_per_replica
