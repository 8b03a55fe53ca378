"""A pool without a group: instances that EC2 Fleet launches at once, identified by tags."""

import hashlib
import time
from collections.abc import Callable
from typing import Any

from flyball_actuators.platforms.aws.api import Aws, remedy
from flyball_actuators.platforms.aws.leaving import begin_return, find_return, poll_return
from flyball_actuators.platforms.aws.machines import DECISION, POOL, Instances, instances, machine, tag_of, why_gone
from flyball_actuators.platforms.base import Done, Failed, Handle, Progress, Rejected, Running
from flyball_actuators.platforms.pools.backing import PoolState
from flyball_actuators.platforms.pools.marked import type_mismatch
from flyball_actuators.platforms.pools.operation import Operation, mark, operation_of, token
from flyball_contracts.config import PoolConfig
from flyball_contracts.records import Scale, SubjectState

_MISMATCH = ("IdempotentParameterMismatch",)
_DRY = ("DryRunOperation",)


class Fleet:
    """Launches machines under a request token of the decision, so that a repeated call launches nothing more."""

    def __init__(self, aws: Aws, pool: PoolConfig, busy: Callable[[], frozenset[str]]) -> None:
        self._aws, self._pool, self._busy = aws, pool, busy

    def observe(self) -> PoolState | Rejected:
        """Instances with the pool's tag."""
        found = self._machines()
        if isinstance(found, Rejected):
            return found
        mismatch = type_mismatch(self._pool, {one["InstanceType"] for one in found})
        if mismatch is not None:
            return mismatch
        version = hashlib.sha256(",".join(found.ids).encode()).hexdigest()[:16]
        return PoolState(len(found), len(found.running), version)

    def grow(self, decision: Scale, current: PoolState, *, dry_run: bool) -> Handle | Rejected:
        """Launch the missing machines as one instant fleet."""
        own = mark(decision.id)
        known = self._bought(own)
        if isinstance(known, Rejected):
            return known
        more = decision.replicas - current.machines
        operation = operation_of(decision, self._pool.name, current.machines, time.time_ns())
        if known:
            return operation.handle(f"{', '.join(known.ids)} were launched for this decision before")
        request = self._request(decision, own, more)
        if dry_run:
            answer = self._aws.call("ec2", "create_fleet", _DRY, DryRun=True, **request)
            if isinstance(answer, Rejected):
                return answer
            return operation.handle(f"would launch {more} {self._pool.instance_type}", dry_run=True)
        answer = self._aws.call("ec2", "create_fleet", _MISMATCH, **request)
        if isinstance(answer, Rejected):
            return answer
        if isinstance(answer, str):
            earlier = min(current.machines, decision.replicas_before)  # it launched machines, and not all are shown yet
            operation = operation_of(decision, self._pool.name, earlier, time.time_ns())
            return operation.handle("machines were launched for this decision before")
        ids = [name for part in answer.get("Instances", ()) for name in part["InstanceIds"]]
        errors = _errors(answer.get("Errors", ()))
        if not ids:
            return Rejected("platform", errors or f"fleet {answer['FleetId']} launched nothing, and does not say why")
        if len(ids) < more:
            short = errors or "the fleet does not say why"
            operation = operation_of(
                decision, self._pool.name, current.machines, time.time_ns(), ids=",".join(ids), short=short
            )
        return operation.handle(f"fleet {answer['FleetId']} launched {', '.join(sorted(ids))}")

    def shrink(self, decision: Scale, current: PoolState, *, dry_run: bool) -> Handle | Rejected:
        """Return idle machines."""
        found = self._machines()
        if isinstance(found, Rejected):
            return found
        machines = [machine(one) for one in found]
        return begin_return(self._aws, self._pool.name, machines, decision, current, self._busy(), dry_run=dry_run)

    def poll(self, operation: Operation, now_ns: int) -> Progress:
        """Done once the requested machines run; reports machines that the cloud took back meanwhile."""
        if operation.verb == "shrink":
            return poll_return(self._aws, operation, now_ns, self._busy(), self._end, self.observe)
        current = self.observe()
        if isinstance(current, Rejected):
            return Failed(f"unknown outcome: {current.detail}")
        own = self._bought(mark(operation.decision))
        if isinstance(own, Rejected):
            return Failed(f"unknown outcome: {own.detail}")
        more, name = operation.machines - operation.before, self._pool.name
        lost = [one for one in own if one["State"]["Name"] not in ("pending", "running")]
        if lost:
            text = ", ".join(f"{one['InstanceId']} ({why_gone(one)})" for one in lost)
            return Failed(
                f"{text} of pool {name!r} ended before all served; decide again on what is left", current.state
            )
        if operation.short and len(own.running) >= len(operation.machine_ids):
            return Failed(f"{len(own)} of {more} machines of pool {name!r} came: {operation.short}", current.state)
        if not operation.short and len(own.running) >= more:
            return Done(current.state, now_ns, f"{', '.join(own.ids) or 'all'} of pool {name!r} run")
        if now_ns >= operation.until_ns:
            return Failed(
                f"only {len(own.running)} of {more} machines of pool {name!r} run; look at them", current.state
            )
        return Running(f"{len(own.running)} of {more} machines of pool {name!r} run")

    def find(self, decision: Scale, observed: SubjectState | None) -> Handle | Rejected | None:
        """Find instances tagged by the decision, or those that it marked for return."""
        own = self._bought(mark(decision.id))
        if isinstance(own, Rejected):
            return own
        if not own:
            return find_return(self._aws, self._pool.name, decision)
        before = decision.replicas_before if observed is None or observed.replicas is None else observed.replicas
        operation = operation_of(decision, self._pool.name, before, time.time_ns())
        return operation.handle(f"{', '.join(own.ids)} were launched for it")

    def _machines(self) -> Instances | Rejected:
        found = instances(self._aws, POOL, self._pool.name)
        return found if isinstance(found, Rejected) else found.alive

    def _bought(self, own: str) -> Instances | Rejected:
        """Instances launched for a decision, in any state."""
        found = instances(self._aws, DECISION, own)
        if isinstance(found, Rejected):
            return found
        return Instances(one for one in found if tag_of(one, POOL) == self._pool.name)

    def _request(self, decision: Scale, own: str, more: int) -> dict[str, Any]:
        pool = self._pool
        tags = [{"Key": POOL, "Value": pool.name}, {"Key": DECISION, "Value": own}]
        zones = [{"SubnetId" if z.startswith("subnet-") else "AvailabilityZone": z} for z in pool.zones] or [{}]
        spot = pool.market == "spot"
        options = {"SpotOptions": {"AllocationStrategy": "price-capacity-optimized"}} if spot else {}
        return {
            "ClientToken": token(decision),
            "Type": "instant",
            "LaunchTemplateConfigs": [
                {
                    "LaunchTemplateSpecification": _template(pool.resource),
                    "Overrides": [{"InstanceType": pool.instance_type, **zone} for zone in zones],
                }
            ],
            "TargetCapacitySpecification": {
                "TotalTargetCapacity": more,
                "DefaultTargetCapacityType": "spot" if spot else "on-demand",
            },
            "TagSpecifications": [{"ResourceType": kind, "Tags": tags} for kind in ("fleet", "instance")],
            **options,
        }

    def _end(self, instance: str) -> Rejected | None:
        answer = self._aws.call("ec2", "terminate_instances", InstanceIds=[instance])
        return answer if isinstance(answer, Rejected) else None


def _template(name: str) -> dict[str, str]:
    given, _, version = name.partition(":")
    key = "LaunchTemplateId" if given.startswith("lt-") else "LaunchTemplateName"
    return {key: given, "Version": version or "$Default"}


def _errors(errors: Any) -> str:
    text = {f"{one.get('ErrorCode', '')}: {one.get('ErrorMessage', '')}": one.get("ErrorCode", "") for one in errors}
    return "; ".join([*text, remedy(next(iter(text.values())))]) if text else ""
