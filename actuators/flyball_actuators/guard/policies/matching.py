"""Selects the policies that apply to a decision."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import lru_cache

from flyball_actuators.guard.state import Grant, World, urgency_of
from flyball_contracts.config import ActuatorConfig, GuardPolicy
from flyball_contracts.records import AnyDecision

_ANY = ("*",)


def matching(config: ActuatorConfig, decision: AnyDecision, world: World) -> tuple[GuardPolicy, ...]:
    """The policies that match a decision, in the order of the configuration."""
    if not config.policies:
        return ()
    urgency, tenant = urgency_of(decision), world.tenant(decision.workload)
    return tuple(
        policy
        for policy in config.policies
        if (not policy.types or type(decision).__name__ in policy.types)
        and (not policy.urgencies or urgency in policy.urgencies)
        and _places(policy, decision.cell, decision.workload, tenant)
    )


def counted(policy: GuardPolicy, grants: Sequence[Grant], world: World) -> list[Grant]:
    """The grants that count toward a policy's limits.

    Grants of older versions have no workload or type; they count, because they may match.
    """
    if policy.types or policy.urgencies:
        grants = [
            grant
            for grant in grants
            if (not policy.types or not grant.type or grant.type in policy.types)
            and (not policy.urgencies or grant.urgency in policy.urgencies)
        ]
    if policy.cells == policy.workloads == policy.tenants == _ANY:
        return [*grants]
    places = {(grant.cell, grant.workload) for grant in grants}
    within = {at for at in places if not at[1] or _places(policy, *at, world.tenant(at[1]))}
    return [grant for grant in grants if (grant.cell, grant.workload) in within]


def shown(policy: GuardPolicy, cell: str, world: World, tenant: str | None = None) -> int:
    """Number of replicas in a cell's inventories that a policy matches, of all tenants or of one ``tenant``."""
    placed, names = world.placed.get(cell, {}), policy.workloads
    if names == policy.tenants == _ANY:
        held = world.summed().held.get(cell, {})
        return sum(map(len, placed.values())) if tenant is None else held.get(tenant, (0, 0.0))[0]
    tenant_of = world.summed().tenant
    if tenant is None:
        within = (name for name in placed if _any(policy.tenants, tenant_of(name)))
    else:
        within = (name for name in placed if tenant_of(name) == tenant)
    return sum(len(placed[name]) for name in within if _any(names, name))


def _places(policy: GuardPolicy, cell: str, workload: str, tenant: str) -> bool:
    return _any(policy.cells, cell) and _any(policy.workloads, workload) and _any(policy.tenants, tenant)


@lru_cache(65_536)
def _any(patterns: tuple[str, ...], name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
