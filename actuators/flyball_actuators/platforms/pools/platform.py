"""The pools of one cell in one cloud as a platform; see :class:`PoolPlatform`."""

import time
from collections.abc import Callable, Mapping

from flyball_actuators.platforms.base import Capabilities, Failed, Handle, PlatformError, Progress, Rejected
from flyball_actuators.platforms.pools.backing import Backing, PoolState
from flyball_actuators.platforms.pools.operation import decode, operation_of
from flyball_contracts.config import PlatformConfig, PoolConfig
from flyball_contracts.records import AnyDecision, Scale, SubjectState
from flyball_contracts.records.subjects import pool_of

SETTLE_S = 10.0
"""Seconds after the first query in which a cloud may not yet show an earlier request."""
_UNKNOWN = "unknown"


class PoolPlatform:
    """Buys and returns machines; every purchase is marked with its decision, by which it can be found.

    ``backings`` are the cloud resources of the entry's pools. ``clock`` is in nanoseconds.
    """

    capabilities = Capabilities(kinds=frozenset({"Scale"}), tracks=True, about=frozenset({"pool"}))

    def __init__(
        self, entry: PlatformConfig, backings: Mapping[str, Backing], clock: Callable[[], int] = time.time_ns
    ) -> None:
        self.name = entry.driver
        self._pools = {pool.name: pool for pool in entry.pools}
        self._backings = dict(backings)
        self._clock = clock
        self._first_find_s: dict[str, float] = {}

    def observe(self, decision: AnyDecision) -> SubjectState | Rejected:
        """Machines of the pool and, for a purchase, the present cost of all pools."""
        found = self._pool_of(decision)
        if isinstance(found, Rejected):
            return found
        scale, pool, backing = found
        current = backing.observe()
        if isinstance(current, Rejected):
            return current
        if scale.replicas <= current.machines:
            return current.state
        cost = current.machines * pool.price_usd_per_hour
        for name, other in self._backings.items():
            theirs = other.observe() if name != pool.name else None
            if isinstance(theirs, Rejected):
                return theirs._replace(
                    code="platform", detail=f"what pool {name!r} costs is not known, so none is bought: {theirs.detail}"
                )
            if theirs is not None:
                cost += theirs.machines * self._pools[name].price_usd_per_hour
        return SubjectState(
            replicas=current.machines, ready=current.ready, version=current.version, cost_usd_per_hour=round(cost, 6)
        )

    def submit(self, decision: AnyDecision, observed: SubjectState, *, dry_run: bool) -> Handle | Rejected:
        """Buy or return machines, if the pool is unchanged since it was observed."""
        found = self._pool_of(decision)
        if isinstance(found, Rejected):
            return found
        scale, pool, backing = found
        current = backing.observe()
        if isinstance(current, Rejected):
            return current
        if current.version != observed.version:
            return Rejected("conflict", f"pool {pool.name!r} was changed since it was observed; decide again")
        problem = _out_of_range(scale, pool, current)
        if problem is not None:
            return problem
        if scale.replicas == current.machines:
            operation = operation_of(scale, pool.name, current.machines, self._clock())
            return operation.handle(f"pool {pool.name!r} has {current.machines} machines already", dry_run=dry_run)
        return (backing.grow if scale.replicas > current.machines else backing.shrink)(scale, current, dry_run=dry_run)

    def poll(self, handle: Handle) -> Progress:
        """Progress in the cloud."""
        if handle.operation == _UNKNOWN:
            return Failed(f"unknown outcome: {handle.answer}")
        operation = decode(handle.operation)
        backing = self._backings.get(operation.pool)
        if backing is None:
            return Failed(f"unknown outcome: pool {operation.pool!r} is no longer in actuator.platforms; look at it")
        return backing.poll(operation, self._clock())

    def find(self, decision: AnyDecision, observed: SubjectState | None) -> Handle | None:
        """Find the decision's mark; waits for :data:`SETTLE_S` before a decision counts as never submitted."""
        found = self._pool_of(decision)
        if isinstance(found, Rejected):
            return _unknown_handle(found.detail)
        scale, pool, backing = found
        shown = backing.find(scale, observed)
        if isinstance(shown, Rejected):
            return _unknown_handle(shown.detail)
        if shown is not None:
            self._first_find_s.pop(decision.id, None)
            return shown
        now_s = time.monotonic()
        left_s = self._first_find_s.setdefault(decision.id, now_s) + SETTLE_S - now_s
        if left_s > 0:
            raise PlatformError(
                f"{self.name} shows nothing of the decision in pool {pool.name!r}; it counts as never sent in "
                f"{left_s:.1f} s"
            )
        del self._first_find_s[decision.id]
        return None

    def _pool_of(self, decision: AnyDecision) -> tuple[Scale, PoolConfig, Backing] | Rejected:
        name = pool_of(decision.workload)
        pool, backing = self._pools.get(name), self._backings.get(name)
        if pool is None or backing is None:
            return Rejected(
                "unknown_target", f"platform {self.name} has no pool {name!r}; add it to pools of its entry"
            )
        if not isinstance(decision, Scale):
            return Rejected("unsupported", f"platform {self.name} can scale pool {name!r}, nothing else")
        return decision, pool, backing


def _out_of_range(decision: Scale, pool: PoolConfig, current: PoolState) -> Rejected | None:
    wanted = decision.replicas
    if current.least <= wanted <= current.most:
        return None
    return Rejected(
        "invalid",
        f"{wanted} machines lie outside {current.least} to {current.most}, the range that {pool.resource!r} has in the "
        f"cloud; change it there, or request less of pool {pool.name!r}",
    )


def _unknown_handle(detail: str) -> Handle:
    return Handle(operation=_UNKNOWN, expected=SubjectState(), answer=detail)
