"""A pool backed by a managed node group of EKS. EKS chooses and drains the nodes to remove."""

import time
from collections.abc import Sequence
from typing import Any

from flyball_actuators.platforms.aws.api import Aws, remedy
from flyball_actuators.platforms.aws.machines import DECISION
from flyball_actuators.platforms.base import Done, Failed, Handle, Progress, Rejected, Running, Superseded
from flyball_actuators.platforms.pools.backing import PoolState
from flyball_actuators.platforms.pools.marked import found_marked, type_mismatch
from flyball_actuators.platforms.pools.operation import Operation, mark, operation_of, token
from flyball_contracts.config import PoolConfig
from flyball_contracts.records import Scale, SubjectState

_MARKET = {"ON_DEMAND": "on_demand", "SPOT": "spot"}


class NodeGroup:
    """Tags the group with the decision before it sets the desired size, under a request token of the decision."""

    def __init__(self, aws: Aws, pool: PoolConfig) -> None:
        self._aws, self._pool = aws, pool

    def observe(self) -> PoolState | Rejected:
        """Desired size of the group; its machines are ready once it is active without issues."""
        group = self._group()
        return group if isinstance(group, Rejected) else self._pool_state(group)

    def grow(self, decision: Scale, current: PoolState, *, dry_run: bool) -> Handle | Rejected:
        """Set the desired size."""
        return self._scale(decision, current, dry_run=dry_run)

    def shrink(self, decision: Scale, current: PoolState, *, dry_run: bool) -> Handle | Rejected:
        """Set the desired size; EKS drains the nodes within their disruption budgets."""
        return self._scale(decision, current, dry_run=dry_run)

    def poll(self, operation: Operation, now_ns: int) -> Progress:
        """Follow the update, then the group until it is active at its size."""
        failed = ""
        if operation.call:
            update = self._aws.call(
                "eks", "describe_update", name=self._pool.within, nodegroupName=self._pool.resource,
                updateId=operation.call,
            )  # fmt: skip
            if isinstance(update, Rejected):
                return Failed(f"unknown outcome: {update.detail}")
            status, errors = update["update"]["status"], list(update["update"].get("errors") or ())
            if status in ("Failed", "Cancelled"):
                failed = f"the update {status.lower()}: {_issues(errors)}"
            elif status != "Successful":
                return self._late(operation, now_ns, f"update {operation.call} is under way")
        group = self._group()
        if isinstance(group, Rejected):
            return Failed(f"unknown outcome: {group.detail}")
        current, issues = self._pool_state(group), _issues_of(group)
        if isinstance(current, Rejected):
            return Failed(f"unknown outcome: {current.detail}")
        if current.machines != operation.machines and failed:
            return Failed(failed, current.state)
        if current.machines != operation.machines:
            return Superseded(
                f"node group {self._pool.resource} is set to {current.machines} by another client", current.state
            )
        if failed or issues:
            return self._give_up(operation, group, current, now_ns, failed or _issues(issues))
        if group["status"] == "ACTIVE":
            return Done(
                current.state, now_ns, f"node group {self._pool.resource} is active with {current.machines} nodes"
            )
        return self._late(operation, now_ns, f"node group {self._pool.resource} is {group['status'].lower()}")

    def find(self, decision: Scale, observed: SubjectState | None) -> Handle | Rejected | None:
        """Find by tag and size."""
        group = self._group()
        if isinstance(group, Rejected):
            return group
        current = self._pool_state(group)
        if isinstance(current, Rejected):
            return current
        return found_marked(decision, self._pool, current, _mark_of(group), observed)

    def _scale(self, decision: Scale, current: PoolState, *, dry_run: bool) -> Handle | Rejected:
        name, wanted = self._pool.resource, decision.replicas
        operation = operation_of(decision, self._pool.name, current.machines, time.time_ns())
        group = self._group()
        if isinstance(group, Rejected):
            return group
        if group["status"] != "ACTIVE":
            return Rejected(
                "platform", f"node group {name} is {group['status'].lower()}; decide again when it is active"
            )
        if dry_run:
            return operation.handle(f"would set node group {name} to {wanted}", dry_run=True)
        tags = {DECISION: mark(decision.id)}
        marked = self._aws.call("eks", "tag_resource", resourceArn=group["nodegroupArn"], tags=tags)
        if isinstance(marked, Rejected):
            return marked
        update = self._set(wanted, token(decision))
        if isinstance(update, Rejected):
            return update
        operation = operation_of(decision, self._pool.name, current.machines, time.time_ns(), call=update)
        return operation.handle(f"node group {name} was set from {current.machines} to {wanted} (update {update})")

    def _set(self, machines: int, request: str) -> str | Rejected:
        answer = self._aws.call(
            "eks", "update_nodegroup_config", clusterName=self._pool.within, nodegroupName=self._pool.resource,
            scalingConfig={"desiredSize": machines},
            clientRequestToken=request,
        )  # fmt: skip
        return answer if isinstance(answer, Rejected) else str(answer["update"]["id"])

    def _give_up(
        self, operation: Operation, group: dict[str, Any], current: PoolState, now_ns: int, why: str
    ) -> Progress:
        """Withdraw the missing nodes, or they would be bought later; retry while the group is busy until time is up."""
        if operation.verb == "shrink" or _mark_of(group) != mark(operation.decision):
            return Failed(why, current.state)
        back = self._set(operation.before, mark(f"{operation.decision}/back"))
        if isinstance(back, Rejected) and back.code == "platform" and now_ns < operation.until_ns:
            return Running(f"{why}; setting its size to {operation.before} again: {back.detail}")
        again = f"its size is set to {operation.before} again, and EKS chooses which nodes go"
        rest = back.detail if isinstance(back, Rejected) else again
        state = SubjectState(replicas=operation.before if isinstance(back, str) else current.machines)
        return Failed(f"{operation.machines} nodes were requested: {why}; {rest}", state)

    def _late(self, operation: Operation, now_ns: int, what: str) -> Progress:
        return Failed(f"{what}, for too long; look at it") if now_ns >= operation.until_ns else Running(what)

    def _group(self) -> dict[str, Any] | Rejected:
        answer = self._aws.call(
            "eks", "describe_nodegroup", clusterName=self._pool.within, nodegroupName=self._pool.resource
        )
        if isinstance(answer, Rejected):
            return answer
        group: dict[str, Any] = answer["nodegroup"]
        return group

    def _pool_state(self, group: dict[str, Any]) -> PoolState | Rejected:
        mismatch = type_mismatch(self._pool, group.get("instanceTypes") or (self._pool.instance_type,))
        if mismatch is not None:
            return mismatch
        market = _MARKET.get(group.get("capacityType", ""), self._pool.market)
        if market != self._pool.market:
            return Rejected(
                "invalid", f"node group {self._pool.resource} is {market}, pool {self._pool.name!r} "
                f"{self._pool.market}; correct its market in actuator.platforms",
            )  # fmt: skip
        scaling = group["scalingConfig"]
        wanted = int(scaling["desiredSize"])
        active = group["status"] == "ACTIVE" and not _issues_of(group)
        ready, version = wanted if active else 0, f"{wanted}/{_mark_of(group)}"
        return PoolState(wanted, ready, version, int(scaling["minSize"]), int(scaling["maxSize"]))


def _mark_of(group: dict[str, Any]) -> str:
    tags: dict[str, Any] = group.get("tags") or {}
    return str(tags.get(DECISION, ""))


def _issues_of(group: dict[str, Any]) -> list[dict[str, Any]]:
    health: dict[str, Any] = group.get("health") or {}
    return list(health.get("issues") or ())


def _issues(issues: Sequence[dict[str, Any]]) -> str:
    text = [
        f"{one.get('code') or one.get('errorCode')}: {one.get('message') or one.get('errorMessage')}" for one in issues
    ]
    message = "; ".join(text) or "it does not say why"
    which = "InsufficientFreeAddresses" if "Address" in message else "VcpuLimitExceeded" if "Limit" in message else ""
    return f"{message}; {remedy(which)}"
