"""Quota of a tenant."""

from flyball_actuators.guard.limits import recent_of
from flyball_actuators.guard.state import Context, Verdict, refuse
from flyball_contracts.config import Quota
from flyball_contracts.records import SetsReplicas

ROUNDING = 1e-6
"""Sums of parts of GPUs are exact to far less than this."""


def over_quota(context: Context) -> Verdict | None:
    """Refuse a decision that adds replicas if its tenant would then hold more than a policy's ``quota``.

    Of each workload, a tenant holds what the inventories show, or what was let through in the last ``UNSEEN_S`` seconds
    if that is more. A workload of which the inventories showed more replicas within that time, though no decision took
    any away, counts with what it had. The decision's own workload counts with what the decision requests.
    """
    decision, world = context.decision, context.world
    quotas = [(policy.name, policy.quota) for policy in context.policies if policy.quota is not None]
    if not quotas or context.pool is not None:  # new machines belong to no tenant yet
        return None
    if not isinstance(decision, SetsReplicas) or decision.replicas <= decision.starts_from(context.observed):
        return None
    tenant, added = world.tenant(decision.workload), decision.replicas
    own = added * world.summed().gpus(decision.workload)
    replicas, gpus = _at_most(context, tenant)
    if all(_over(quota, added + replicas, own + gpus) is None for _, quota in quotas):
        return None
    replicas, gpus = _held(context, tenant)
    for name, quota in quotas:
        if over := _over(quota, added + replicas, own + gpus):
            what, most, held = over
            return refuse(
                "quota",
                f"policy {name!r}: tenant {tenant!r} would hold {held:g} {what} in cell {decision.cell!r} and may "
                f"hold {most:g}; scale something else of it in, or raise the quota",
                name,
            )
    return None


def _over(quota: Quota, replicas: int, gpus: float) -> tuple[str, float, float] | None:
    """What would exceed a quota, how much the quota allows, and how much would be held."""
    for what, most, held in (("replicas", quota.replicas, replicas), ("GPUs", quota.gpus, gpus)):
        if most is not None and held > most + ROUNDING:
            return what, most, held
    return None


def _at_most(context: Context, tenant: str) -> tuple[int, float]:
    """Upper bound of :func:`_held` without a walk over grants: all that inventories show plus all that grants gave."""
    cell, sums = context.decision.cell, context.world.summed()
    replicas, gpus = sums.held.get(cell, {}).get(tenant, (0, 0.0))
    granted, granted_gpus = recent_of(context).total.get(tenant, (0, 0.0))
    fell = [(most, most * sums.gpus(name)) for (of, name), most in context.world.held.items() if of == cell]
    return (
        replicas + granted + sum(most for most, _ in fell),
        gpus + granted_gpus + sum(most_gpus for _, most_gpus in fell),
    )


def _held(context: Context, tenant: str) -> tuple[int, float]:
    """Replicas and GPUs of a tenant's workloads in the decision's cell, except the decision's own workload."""
    world, cell, own = context.world, context.decision.cell, context.decision.workload
    sums, placed = world.summed(), world.placed.get(cell, {})
    replicas, gpus = sums.held.get(cell, {}).get(tenant, (0, 0.0))
    expected = recent_of(context).replicas.get(tenant, {})
    fell = {name: (most, sums.gpus(name)) for (of, name), most in world.held.items() if of == cell}
    if fell:
        expected = {name: of for name, of in fell.items() if sums.tenant(name) == tenant} | expected
    for workload, (count, each) in expected.items():
        if (more := count - len(placed.get(workload, ()))) > 0:
            replicas, gpus = replicas + more, gpus + more * each
    now = max(len(placed.get(own, ())), expected.get(own, (0, 0.0))[0])
    return replicas - now, gpus - now * sums.gpus(own)
