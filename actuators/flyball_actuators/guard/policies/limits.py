"""Limits on actions, replicas and cost in a time window, by target, workload, tenant or cell."""

from collections.abc import Iterator
from math import ceil

from flyball_actuators.guard.limits import index_of, least_of, remedy, within
from flyball_actuators.guard.policies.matching import counted, shown
from flyball_actuators.guard.state import Context, Grant, Verdict, added_usd_per_hour, adds_unknown_cost, refuse
from flyball_contracts.config import GuardPolicy, Limit

_TAKEN = "replicas taken away"


def over_limit(context: Context) -> Verdict | None:
    """Refuse a decision that would exceed a limit of a policy; refused decisions never count."""
    for policy in context.policies:
        for number, limit in enumerate(policy.limits):
            verdict = _over(context, policy, limit, f"policy {policy.name!r}, limits[{number}]")
            if verdict is not None:
                return verdict
    return None


def room_of(context: Context) -> Iterator[int]:
    """Replicas that may still be taken away under each limit of the policies."""
    for policy in context.policies:
        for limit in policy.limits:
            most = _most(context, policy, limit)
            if most is not None:
                yield most - sum(grant.taken for grant in _counted(context, policy, limit))


def _over(context: Context, policy: GuardPolicy, limit: Limit, where: str) -> Verdict | None:
    decision = context.decision
    takes = context.takes
    most_taken = _most(context, policy, limit) if takes else None
    if limit.actions is None and most_taken is None and limit.usd_per_hour is None:
        return None
    if limit.usd_per_hour is not None and context.config.mode == "live" and adds_unknown_cost(context):
        return refuse(
            "limit",
            f"{where}: neither the decision nor an inventory says what a GPU of cell {decision.cell!r} costs, so "
            f"{limit.usd_per_hour:g} USD an hour cannot be kept; set agent.price_usd_per_hour on its nodes, or take "
            "usd_per_hour off the limit",
            policy.name,
        )
    own = _counted(context, policy, limit)
    taken, usd_per_hour = sum(grant.taken for grant in own), sum(grant.usd_per_hour for grant in own)
    added = added_usd_per_hour(context)
    least, fewer = least_of(decision, takes), remedy((most_taken or 0) - taken)
    checks: tuple[tuple[str, float | None, float, float, float, str], ...] = (
        ("actions", limit.actions, len(own), 1, 1, "wait"),
        (_TAKEN, most_taken, taken, takes, least, fewer),
        ("USD an hour added", limit.usd_per_hour, usd_per_hour, added, added, "wait, request less"),
    )
    for what, most, before, more, at_least, what_to_do in checks:
        if most is not None and more and before + at_least > most:
            return refuse(
                "limit",
                f"{where}: {more:g} {what} after {before:g} in the last {limit.window_s:g} s, and {limit.per} "
                f"{_names(context)[limit.per]!r} may have {most:g}{_of(context, policy, limit, what)}; {what_to_do}, "
                "or raise the limit",
                policy.name,
                most_taken - taken if what == _TAKEN and most_taken is not None else None,
            )
    return None


def _most(context: Context, policy: GuardPolicy, limit: Limit) -> int | None:
    """Replicas that may be taken away in the window; ``None``: any number, or it is not known yet."""
    if isinstance(limit.replicas, int):
        return limit.replicas
    runs = None if limit.share is None else _running(context, policy, limit)
    return None if limit.share is None or runs is None else ceil(limit.share * runs / 100)


def _running(context: Context, policy: GuardPolicy, limit: Limit) -> int | None:
    """Replicas, or machines of a pool, of which a share may be taken away.

    They are those in the inventories; for the decision's own workload, the platform's number counts if it is higher.
    ``None`` on arrival if only the platform shows the number: the decision is judged again later.
    """
    decision, world, state = context.decision, context.world, context.observed
    observed = 0 if state is None else max(state.replicas or 0, state.ready or 0)
    own = 0 if context.pool is not None else world.running(decision.cell, decision.workload)
    if state is None and not own:
        return None
    if context.pool is not None or limit.per in ("target", "workload"):
        return max(own, observed)
    tenant = world.tenant(decision.workload) if limit.per == "tenant" else None
    return shown(policy, decision.cell, world, tenant) - own + max(own, observed)


def _of(context: Context, policy: GuardPolicy, limit: Limit, what: str) -> str:
    """Text that names the number of which a share is taken; empty without a share."""
    runs = _running(context, policy, limit) if what == _TAKEN and limit.share is not None else None
    return "" if runs is None else f", {limit.replicas} of the {runs} that run"


def _counted(context: Context, policy: GuardPolicy, limit: Limit) -> list[Grant]:
    """The grants in the window of a limit that count with the decision."""
    index, name = index_of(context), _names(context)[limit.per]
    granted = index.grants if limit.per == "cell" else index.of(limit.per, name)
    now_ns = context.state.clock(context.decision.cell, context.now_ns)
    return counted(policy, within(granted, now_ns, limit.window_s), context.world)


def _names(context: Context) -> dict[str, str]:
    decision = context.decision
    return {
        "target": decision.target,
        "workload": decision.workload,
        "tenant": context.world.tenant(decision.workload),
        "cell": decision.cell,
    }
