"""A pool backed by an Auto Scaling group, which takes no request token and no version, only absolute numbers."""

import hashlib
import time
from collections.abc import Callable
from typing import Any

from flyball_actuators.platforms.aws.api import Aws, remedy, scarce
from flyball_actuators.platforms.aws.leaving import begin_return, find_return, poll_return
from flyball_actuators.platforms.aws.machines import DECISION, by_id, machine
from flyball_actuators.platforms.base import Done, Failed, Handle, Progress, Rejected, Running, Superseded
from flyball_actuators.platforms.pools.backing import PoolState
from flyball_actuators.platforms.pools.marked import found_marked, type_mismatch
from flyball_actuators.platforms.pools.operation import Operation, mark, operation_of
from flyball_contracts.config import PoolConfig
from flyball_contracts.records import Scale, SubjectState

_MESSAGES = (("insufficient", "capacity", "InsufficientInstanceCapacity"), ("vcpu", "limit", "VcpuLimitExceeded"))
_ACTIVITIES = 20


class Group:
    """Tags the group with the decision before it sets the desired capacity; new machines inherit the tag.

    Machines to return are chosen one by one, so that no busy machine is returned; instance protection is respected.
    """

    def __init__(self, aws: Aws, pool: PoolConfig, busy: Callable[[], frozenset[str]]) -> None:
        self._aws, self._pool, self._busy = aws, pool, busy

    def observe(self) -> PoolState | Rejected:
        """Desired capacity of the group, and its instances in service."""
        group = self._group()
        return group if isinstance(group, Rejected) else self._pool_state(group)

    def grow(self, decision: Scale, current: PoolState, *, dry_run: bool) -> Handle | Rejected:
        """Tag the group, then set its desired capacity."""
        pool, name = self._pool, self._pool.resource
        activities = self._activities()
        if isinstance(activities, Rejected):
            return activities
        seen = activities[0]["ActivityId"] if activities else "none"
        operation = operation_of(decision, pool.name, current.machines, time.time_ns(), seen=seen)
        if dry_run:
            return operation.handle(f"would set group {name} to {decision.replicas}", dry_run=True)
        tag = {"ResourceId": name, "ResourceType": "auto-scaling-group", "Key": DECISION, "PropagateAtLaunch": True}
        marked = self._aws.call("autoscaling", "create_or_update_tags", Tags=[{**tag, "Value": mark(decision.id)}])
        if isinstance(marked, Rejected):
            return marked
        answer = self._set(decision.replicas)
        if isinstance(answer, Rejected):
            return answer
        return operation.handle(f"group {name} was set from {current.machines} to {decision.replicas} machines")

    def shrink(self, decision: Scale, current: PoolState, *, dry_run: bool) -> Handle | Rejected:
        """Return idle instances that are not protected."""
        group = self._group()
        if isinstance(group, Rejected):
            return group
        members = {one["InstanceId"]: one for one in _members(group)}
        found = by_id(self._aws, sorted(members))
        if isinstance(found, Rejected):
            return found
        machines = [
            machine(one, protected=bool(members[one["InstanceId"]].get("ProtectedFromScaleIn"))) for one in found.alive
        ]
        return begin_return(self._aws, self._pool.name, machines, decision, current, self._busy(), dry_run=dry_run)

    def poll(self, operation: Operation, now_ns: int) -> Progress:
        """Done once the requested instances are in service; takes back a request that the cloud cannot meet."""
        if operation.verb == "shrink":
            return poll_return(self._aws, operation, now_ns, self._busy(), self._end, self.observe)
        group = self._group()
        if isinstance(group, Rejected):
            return Failed(f"unknown outcome: {group.detail}")
        current, name = self._pool_state(group), self._pool.resource
        if isinstance(current, Rejected):
            return Failed(f"unknown outcome: {current.detail}")
        if current.machines != operation.machines:
            return Superseded(f"group {name} is set to {current.machines} machines by another client", current.state)
        if current.ready == operation.machines:
            return Done(current.state, now_ns, f"{current.ready} machines of group {name} are in service")
        problem = self._problem(operation)
        if problem or now_ns >= operation.until_ns:
            return self._give_up(operation, group, problem or "they did not come into service in time")
        return Running(f"{current.ready} of {operation.machines} machines of group {name} are in service")

    def find(self, decision: Scale, observed: SubjectState | None) -> Handle | Rejected | None:
        """Find the tag on the group (purchases) or on the machines (returns)."""
        before = decision.replicas_before if observed is None or observed.replicas is None else observed.replicas
        if decision.replicas < before:
            return find_return(self._aws, self._pool.name, decision)
        group = self._group()
        if isinstance(group, Rejected):
            return group
        current = self._pool_state(group)
        if isinstance(current, Rejected):
            return current
        return found_marked(decision, self._pool, current, _mark_of(group), observed)

    def _group(self) -> dict[str, Any] | Rejected:
        name = self._pool.resource
        answer = self._aws.call("autoscaling", "describe_auto_scaling_groups", AutoScalingGroupNames=[name])
        if isinstance(answer, Rejected):
            return answer
        groups: list[dict[str, Any]] = answer["AutoScalingGroups"]
        if not groups:
            return Rejected("unknown_target", f"there is no Auto Scaling group {name!r}; correct pools in its entry")
        return groups[0]

    def _pool_state(self, group: dict[str, Any]) -> PoolState | Rejected:
        members, wanted = _members(group), int(group["DesiredCapacity"])
        types = {str(one["InstanceType"]) for one in members if one.get("InstanceType")}
        mismatch = type_mismatch(self._pool, types)
        if mismatch is not None:
            return mismatch
        ready = sum(one["LifecycleState"] == "InService" and one["HealthStatus"] == "Healthy" for one in members)
        ids = ",".join(sorted(one["InstanceId"] for one in members))
        version = f"{wanted}/{_mark_of(group)}/{hashlib.sha256(ids.encode()).hexdigest()[:12]}"
        return PoolState(wanted, ready, version, int(group["MinSize"]), int(group["MaxSize"]))

    def _set(self, machines: int) -> Rejected | None:
        answer = self._aws.call(
            "autoscaling",
            "set_desired_capacity",
            AutoScalingGroupName=self._pool.resource,
            DesiredCapacity=machines,
            HonorCooldown=True,
        )
        return answer if isinstance(answer, Rejected) else None

    def _end(self, instance: str) -> Rejected | None:
        """Terminate one member of the group and decrement the desired capacity."""
        group = self._group()
        if isinstance(group, Rejected):
            return group
        member = next((one for one in _members(group) if one["InstanceId"] == instance), None)
        if member is None:
            return None
        if member.get("ProtectedFromScaleIn"):
            return Rejected("conflict", f"{instance} was protected since it was chosen; it stays")
        answer = self._aws.call(
            "autoscaling",
            "terminate_instance_in_auto_scaling_group",
            InstanceId=instance,
            ShouldDecrementDesiredCapacity=True,
        )
        return answer if isinstance(answer, Rejected) else None

    def _activities(self) -> list[dict[str, Any]] | Rejected:
        """Scaling activities, newest first."""
        answer = self._aws.call(
            "autoscaling",
            "describe_scaling_activities",
            AutoScalingGroupName=self._pool.resource,
            MaxRecords=_ACTIVITIES,
        )
        return answer if isinstance(answer, Rejected) else list(answer["Activities"])

    def _problem(self, operation: Operation) -> str:
        """Why the cloud provides no machines, from the scaling activities since the submission."""
        activities = self._activities()
        if isinstance(activities, Rejected) or not operation.seen:
            return ""
        for one in activities:
            if one["ActivityId"] == operation.seen:
                return ""
            message = str(one.get("StatusMessage", ""))
            code = _code(message)
            if one["StatusCode"] in ("Failed", "Cancelled") and scarce(code):
                return f"{message}; {remedy(code)}"
        return ""

    def _give_up(self, operation: Operation, group: dict[str, Any], why: str) -> Progress:
        """Withdraw the missing machines, or they would be bought later."""
        here = max(len(_members(group)), operation.before, int(group["MinSize"]))
        back = self._set(here) if _mark_of(group) == mark(operation.decision) else None
        current = self.observe()
        state = SubjectState() if isinstance(current, Rejected) else current.state
        rest = f"; {back.detail}" if back is not None else f"; the group is set to {here} again"
        return Failed(f"{operation.machines} machines were requested, {here} are there: {why}{rest}", state)


def _members(group: dict[str, Any]) -> list[dict[str, Any]]:
    """Instances that are in the group or join it, without those that leave."""
    return [one for one in group["Instances"] if not one["LifecycleState"].startswith(("Terminat", "Detach"))]


def _mark_of(group: dict[str, Any]) -> str:
    return next((str(tag["Value"]) for tag in group.get("Tags", ()) if tag["Key"] == DECISION), "")


def _code(message: str) -> str:
    """Error code from a scaling activity's human-readable message."""
    low = message.lower()
    return next(
        (code for first, second, code in _MESSAGES if first in low and second in low), message.partition(":")[0]
    )
