"""A purchase by an absolute number, which is marked on the holder before the number is set."""

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
    """What mark and number say of a decision.

    Our mark and our number: it was done. Our mark and the old number: it was not, and the number may be set, again if
    need be, because it is absolute. No mark and the version that was judged: it was never begun. Anything else was
    somebody else's doing, and may have hidden it.
    """
    before = decision.replicas_before if observed is None or observed.replicas is None else observed.replicas
    ours = marked == mark(decision.id)
    if ours and current.machines == decision.replicas:
        return operation_of(decision, pool.name, before, time.time_ns()).handle(f"found on {pool.resource}")
    if (ours and current.machines == before) or (observed is not None and current.version == observed.version):
        return None
    return Rejected(
        "conflict",
        f"pool {pool.name!r} was changed by somebody else since the decision was claimed ({current.machines} machines)"
        "; look at it",
    )


def type_mismatch(pool: PoolConfig, types: Collection[str]) -> Rejected | None:
    """Refuse machines of another type than the one whose price is counted."""
    others = sorted(set(types) - {pool.instance_type})
    if not others:
        return None
    return Rejected(
        "invalid",
        f"pool {pool.name!r} has machines of type {', '.join(others)}, and its price is that of {pool.instance_type}; "
        "correct it in actuator.platforms, so that the budget counts what they cost",
    )
