"""Purchases by an absolute number, which mark the cloud resource before they set the number."""

import time
from collections.abc import Collection

from flyball_actuators.platforms.base import Handle, Rejected
from flyball_actuators.platforms.pools.backing import PoolState
from flyball_actuators.platforms.pools.operation import mark, operation_of
from flyball_contracts.config import PoolConfig
from flyball_contracts.records import Scale, SubjectState


def found_marked(
    decision: Scale, pool: PoolConfig, current: PoolState, marked: str, observed: SubjectState | None
) -> Handle | Rejected | None:
    """Find a decision by mark and number.

    With our mark and our number, it was done. With our mark and the old number, it was not, and the absolute number may
    be set, or set again. Without our mark, but with the version that was judged, it was never started. Otherwise
    another client has changed the resource, and may have overwritten the mark.
    """
    before = decision.replicas_before if observed is None or observed.replicas is None else observed.replicas
    ours = marked == mark(decision.id)
    if ours and current.machines == decision.replicas:
        return operation_of(decision, pool.name, before, time.time_ns()).handle(f"found on {pool.resource}")
    if (ours and current.machines == before) or (observed is not None and current.version == observed.version):
        return None
    return Rejected(
        "conflict",
        f"pool {pool.name!r} was changed by another client since the decision was claimed ({current.machines} machines)"
        "; look at it",
    )


def type_mismatch(pool: PoolConfig, types: Collection[str]) -> Rejected | None:
    """Reject machines of a type other than the one whose price is configured."""
    others = sorted(set(types) - {pool.instance_type})
    if not others:
        return None
    return Rejected(
        "invalid",
        f"pool {pool.name!r} has machines of type {', '.join(others)}, and its price is that of {pool.instance_type}; "
        "correct it in actuator.platforms, so that the budget counts what they cost",
    )
