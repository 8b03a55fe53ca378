"""Limits on actions, replicas and cost in a time window, by target, workload, tenant or cell."""

from collections.abc import Callable, Mapping

from flyball_actuators.guard.limits import granted_by, within
from flyball_actuators.guard.policies.matching import counted
from flyball_actuators.guard.state import Context, Grant, Verdict, World, added_usd_per_hour, refuse
from flyball_contracts.config import GuardPolicy, Limit

_GROUP: Mapping[str, Callable[[Grant, World], str]] = {
    "target": lambda grant, world: grant.target,
    "workload": lambda grant, world: grant.workload,
    "tenant": lambda grant, world: world.tenant(grant.workload),
    "cell": lambda grant, world: grant.cell,
}


def over_limit(context: Context) -> Verdict | None:
    """Refuse a decision that would exceed a limit of a policy; refused decisions never count."""
    for policy in context.policies:
        for number, limit in enumerate(policy.limits):
            verdict = _over(context, policy, limit, f"policy {policy.name!r}, limits[{number}]")
            if verdict is not None:
                return verdict
    return None


def _over(context: Context, policy: GuardPolicy, limit: Limit, where: str) -> Verdict | None:
    decision, world = context.decision, context.world
    names = {
        "target": decision.target,
        "workload": decision.workload,
        "tenant": world.tenant(decision.workload),
        "cell": decision.cell,
    }
    now_ns = context.state.clock(decision.cell, context.now_ns)
    granted = within(context.state.grants.get(decision.cell, ()), now_ns, limit.window_s)
    own = [
        grant
        for grant in counted(policy, granted, world)
        if not grant.workload or _GROUP[limit.per](grant, world) == names[limit.per]
    ]
    takes = granted_by(context)
    checks: tuple[tuple[str, float | None, float, float], ...] = (
        ("actions", limit.actions, len(own), 1),
        ("replicas taken away", limit.replicas, sum(grant.taken for grant in own), takes),
        ("USD an hour added", limit.usd_per_hour, sum(g.usd_per_hour for g in own), added_usd_per_hour(context)),
    )
    for what, most, before, more in checks:
        if most is not None and more and before + more > most:
            return refuse(
                "limit",
                f"{where}: {more:g} {what} after {before:g} in the last {limit.window_s:g} s, and {limit.per} "
                f"{names[limit.per]!r} may have {most:g}; wait, request less, or raise the limit",
                policy.name,
            )
    return None
