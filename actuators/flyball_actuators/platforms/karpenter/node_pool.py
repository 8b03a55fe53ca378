"""A NodePool as a pool of machines; its limits determine the number."""

import time
from math import floor, inf

from flyball_actuators.platforms.base import Done, Failed, Handle, Progress, Rejected, Running, Superseded
from flyball_actuators.platforms.karpenter.disruption import DO_NOT_DISRUPT
from flyball_actuators.platforms.kubernetes.api import MERGE, Api, refused
from flyball_actuators.platforms.kubernetes.kinds import Object, field_manager_of, is_true, status_of
from flyball_actuators.platforms.kubernetes.operation import manager
from flyball_actuators.platforms.kubernetes.pods import managed_by
from flyball_actuators.platforms.kubernetes.quantity import amount, quantity
from flyball_actuators.platforms.kubernetes.targets import version_of
from flyball_actuators.platforms.pools.backing import PoolState
from flyball_actuators.platforms.pools.operation import Operation, operation_of
from flyball_contracts.config import PoolConfig
from flyball_contracts.records import Scale, SubjectState

GROUP = "karpenter.sh/v1"
OF_POOL = "karpenter.sh/nodepool"
_TRIES = 4


class NodePool:
    """Machines that Karpenter may have in one NodePool.

    Flyball sets the limits. Karpenter buys machines for waiting pods within the limits, and returns machines by
    consolidation within the pool's disruption budgets.
    """

    def __init__(self, api: Api, pool: PoolConfig) -> None:
        self._api, self._pool = api, pool
        self._path = f"/apis/{GROUP}/nodepools/{pool.resource}"

    def observe(self) -> PoolState | Rejected:
        """Number of machines that the limits allow, and the number that are ready."""
        obj = self._read()
        if isinstance(obj, Rejected):
            return obj
        machines = self._machines(obj)
        if isinstance(machines, Rejected):
            return machines
        claims = self._claims()
        if isinstance(claims, Rejected):
            return claims
        return PoolState(machines, _ready(_not_deleted(claims)), version_of(obj))

    def grow(self, decision: Scale, current: PoolState, *, dry_run: bool) -> Handle | Rejected:
        """Raise the limits."""
        return self._limit(decision, current, dry_run=dry_run)

    def shrink(self, decision: Scale, current: PoolState, *, dry_run: bool) -> Handle | Rejected:
        """Lower the limits: nothing more is bought, and machines beyond them wait for Karpenter's consolidation."""
        return self._limit(decision, current, dry_run=dry_run)

    def poll(self, operation: Operation, now_ns: int) -> Progress:
        """Done once the limits are in place and no machines exceed them."""
        obj = self._read()
        if isinstance(obj, Rejected):
            return Failed(f"unknown outcome: {obj.detail}")
        machines, claims = self._machines(obj), self._claims()
        if isinstance(claims, Rejected):
            return Running(claims.detail)
        present = _not_deleted(claims)
        state = SubjectState(replicas=None if isinstance(machines, Rejected) else machines, ready=_ready(present))
        if machines != operation.machines:
            return Superseded(f"{self} has other limits, set by {field_manager_of(obj, 'limits')}", state)
        beyond, leaving = len(present) - operation.machines, len(claims) - len(present)
        if beyond <= 0 and leaving and operation.verb == "shrink" and now_ns < operation.until_ns:
            return Running(f"{leaving} machines of {self} are on their way out")
        if beyond <= 0:
            answer_text = (
                f"{self} may have {operation.machines} machines, and has {len(present)}, {_ready(present)} ready"
            )
            return Done(state, now_ns, answer_text)
        why = f"{self} has {beyond} machines beyond its limits: {self._consolidation_blocker(obj, present)}"
        if now_ns >= operation.until_ns:
            return Failed(f"{why}; it buys no more, and they go when Karpenter lets them", state)
        return Running(why)

    def find(self, decision: Scale, observed: SubjectState | None) -> Handle | Rejected | None:
        """Find the operation by the decision's field manager on the limits."""
        obj = self._read()
        if isinstance(obj, Rejected):
            return obj
        machines = self._machines(obj)
        if machines == decision.replicas and managed_by(obj, manager(decision.id)):
            return self._handle(decision, decision.replicas_before, f"found on {self}", dry_run=False)
        if observed is not None and version_of(obj) == observed.version:
            return None
        return Rejected(
            "conflict",
            f"{self} was changed by {field_manager_of(obj, 'limits')} since the decision was claimed; look at it",
        )

    def __str__(self) -> str:
        return f"NodePool {self._pool.resource}"

    def _read(self) -> Object | Rejected:
        answer = self._api.get(self._path)
        if not answer.ok:
            return refused(answer, f"reading {self}")
        if "replicas" in answer.body["spec"]:
            return Rejected("unsupported", f"{self} is static: Karpenter keeps spec.replicas machines; leave it out")
        return dict(answer.body)

    def _machines(self, obj: Object) -> int | Rejected:
        """Number of machines that the limits allow."""
        limits: dict[str, str] = obj["spec"].get("limits") or {}
        room = inf
        for resource, each in self._pool.per_machine.items():
            limit = amount(limits.get(resource))
            if limit is None:
                return Rejected("invalid", f"{self} has no limit of {resource}; set spec.limits, 0 for none yet")
            room = min(room, limit / each)
        return floor(room + 1e-3)  # limits are written to a thousandth

    def _claims(self) -> list[Object] | Rejected:
        """The NodeClaims, including those being deleted."""
        query = (("labelSelector", f"{OF_POOL}={self._pool.resource}"),)
        answer = self._api.listed(f"/apis/{GROUP}/nodeclaims", query)
        if not answer.ok:
            return refused(answer, f"listing the NodeClaims of {self}")
        return list(answer.body)

    def _limit(self, decision: Scale, current: PoolState, *, dry_run: bool) -> Handle | Rejected:
        limits = {name: quantity(each * decision.replicas) for name, each in self._pool.per_machine.items()}
        query = (("fieldManager", manager(decision.id)), *((("dryRun", "All"),) if dry_run else ()))
        for _ in range(_TRIES):
            obj = self._read()
            if isinstance(obj, Rejected):
                return obj
            if version_of(obj) != current.version:
                return Rejected(
                    "conflict", f"{self} was changed by {field_manager_of(obj, 'limits')} meanwhile; decide again"
                )
            named = {"name": self._pool.resource, "resourceVersion": obj["metadata"]["resourceVersion"]}
            body = {"apiVersion": GROUP, "kind": "NodePool", "metadata": named, "spec": {"limits": limits}}
            answer = self._api.call("PATCH", self._path, body, query, MERGE)
            if answer.ok:
                answer_text = "would be" if dry_run else "is"
                changed = f"{self} {answer_text} limited to {', '.join(f'{k}={v}' for k, v in limits.items())}"
                audit = f" (audit id {answer.audit_id})" if answer.audit_id else ""
                return self._handle(decision, current.machines, f"{changed}{audit}", dry_run=dry_run)
            if answer.status != 409:
                return refused(answer, f"limiting {self}")
        return Rejected("conflict", f"{self} changed {_TRIES} times while it was written; decide again")

    def _handle(self, decision: Scale, before: int, answer: str, *, dry_run: bool) -> Handle:
        operation = operation_of(decision, self._pool.name, before, time.time_ns())
        handle = operation.handle(answer, dry_run=dry_run)
        # Karpenter decides the number of ready machines: it buys for waiting pods, not up to a limit.
        return Handle(
            operation=handle.operation, expected=SubjectState(replicas=decision.replicas), answer=handle.answer
        )

    def _consolidation_blocker(self, obj: Object, claims: list[Object]) -> str:
        """What prevents Karpenter from returning machines."""
        disruption: Object = obj["spec"].get("disruption") or {}
        after = disruption.get("consolidateAfter", "0s")
        if after == "Never":
            return "consolidateAfter is Never, so Karpenter returns none; set a time"
        budgets: list[Object] = disruption.get("budgets") or []
        blocking = [b for b in budgets if str(b.get("nodes", "")) in ("0", "0%") and "schedule" not in b]
        if blocking:
            reasons = ", ".join(blocking[0].get("reasons") or ()) or "any reason"
            return f"its disruption budget allows 0 nodes for {reasons}; raise it"
        policy = disruption.get("consolidationPolicy", "WhenEmptyOrUnderutilized")
        names = ", ".join(sorted(str(status_of(one).get("nodeName") or one["metadata"]["name"]) for one in claims))
        return (
            f"Karpenter returns them ({policy}, after {after}) once they are not needed and no pod on them has "
            f"{DO_NOT_DISRUPT}; there are {names}"
        )


def _not_deleted(claims: list[Object]) -> list[Object]:
    return [one for one in claims if "deletionTimestamp" not in one["metadata"]]


def _ready(claims: list[Object]) -> int:
    return sum(is_true(claim, "Ready") for claim in claims)
