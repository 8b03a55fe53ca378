"""Purchases: the range of a pool, and what all pools of a cell may cost."""

from flyball_actuators.guard.state import Context, Verdict, added_usd_per_hour, refuse
from flyball_contracts.config import ActuatorConfig, PlatformConfig, PoolConfig
from flyball_contracts.records import AnyDecision, Scale, SetsReplicas
from flyball_contracts.records.subjects import pool_of


def pool_in(config: ActuatorConfig, decision: AnyDecision) -> PoolConfig | None:
    """The configured pool that a decision is about; ``None`` for a workload, or if its cell has no such pool."""
    name = pool_of(decision.workload)
    return next((pool for pool in _entry(config, decision.cell, name).pools if pool.name == name), None)


def pool_size(decision: AnyDecision, pool: PoolConfig) -> str:
    """Error in a decision about a pool; empty if there is none."""
    if not isinstance(decision, Scale):
        return f"pool {pool.name!r} can be scaled, nothing else; move or stop what runs on its machines instead"
    if decision.resources is not None or decision.mix or decision.power_limit_w is not None:
        return f"pool {pool.name!r} has a number of machines, nothing else; leave out resources, mix and power_limit_w"
    if decision.replicas_before < 0:
        return f"replicas_before is {decision.replicas_before}; it must not be negative"
    if not pool.min_machines <= decision.replicas <= pool.max_machines:
        return (
            f"{decision.replicas} machines lie outside {pool.min_machines} to {pool.max_machines}, the range of pool "
            f"{pool.name!r}; change its min_machines or max_machines in actuator.platforms"
        )
    return ""


def over_budget(context: Context) -> Verdict | None:
    """Refuse a purchase after which all pools of the cell would cost more than ``budget_usd_per_hour``.

    The platform reports the present cost; without it nothing is bought in mode live.
    """
    decision, pool = context.decision, context.pool
    if pool is None or not isinstance(decision, SetsReplicas):
        return None
    shown = None if context.observed is None else context.observed.replicas
    if decision.replicas <= (decision.replicas_before if shown is None else shown):
        return None
    budget, live = _entry(context.config, decision.cell, pool.name).budget_usd_per_hour, context.config.mode == "live"
    if budget is None:
        return _no_budget(decision) if live else None
    if context.observed is None:
        return None  # on arrival; it is judged again on what the platform shows
    cost = context.observed.cost_usd_per_hour
    if cost is None:
        return _no_cost(decision) if live else None
    added = added_usd_per_hour(context)
    if cost + added <= budget:
        return None
    return refuse(
        "limit",
        f"it adds {added:g} USD an hour to the {cost:g} that the pools of cell {decision.cell!r} cost now, and "
        f"actuator.platforms has a budget_usd_per_hour of {budget:g} for them; return machines first, or raise it",
    )


def _entry(config: ActuatorConfig, cell: str, pool: str) -> PlatformConfig:
    found = (entry for entry in config.platforms if entry.cells == (cell,) and any(p.name == pool for p in entry.pools))
    return next(found, PlatformConfig())


def _no_budget(decision: AnyDecision) -> Verdict:
    return refuse(
        "limit",
        f"nothing may be bought in cell {decision.cell!r}: its entry in actuator.platforms has no budget_usd_per_hour; "
        "set one",
    )


def _no_cost(decision: AnyDecision) -> Verdict:
    return refuse(
        "limit",
        f"the platform does not show what the pools of cell {decision.cell!r} cost, so no budget can be kept; decide "
        "again when it does",
    )
