"""Machines that a managed instance group gets all at once when the zone has them: resize requests (flex-start)."""

import time
from typing import Any

from flyball_actuators.platforms.base import Failed, Handle, Progress, Rejected, Running, Superseded
from flyball_actuators.platforms.gcp.api import remedy
from flyball_actuators.platforms.gcp.group import InstanceGroup
from flyball_actuators.platforms.pools.backing import PoolState
from flyball_actuators.platforms.pools.operation import Operation, mark, operation_of, token_uuid
from flyball_contracts.records import Scale, SubjectState

_ENDED = ("FAILED", "CANCELLED")


class ResizeRequests(InstanceGroup):
    """A request is named after its decision, so it is never made twice; it is cancelled when it is given up."""

    def grow(self, decision: Scale, current: PoolState, *, dry_run: bool) -> Handle | Rejected:
        """Request the missing machines."""
        name, more = _called(decision.id), decision.replicas - current.machines
        operation = operation_of(decision, self.pool.name, current.machines, time.time_ns(), seen=name)
        if dry_run:
            return operation.handle(f"would request {more} machines for {self.pool.resource}", dry_run=True)
        answer = self.call(
            "requests",
            "insert_unary",
            instance_group_manager=self.pool.resource,
            instance_group_manager_resize_request_resource={"name": name, "resize_by": more},
            request_id=token_uuid(decision),
        )
        if isinstance(answer, Rejected):
            return answer
        return operation.handle(f"{more} machines were requested for {self.pool.resource} as {name}")

    def poll(self, operation: Operation, now_ns: int) -> Progress:
        """Follow the request, then the group."""
        if operation.verb == "shrink" or not operation.seen:
            return super().poll(operation, now_ns)
        request = self._request(operation.seen)
        if isinstance(request, Rejected):
            return Failed(f"unknown outcome: {request.detail}")
        if request.state in _ENDED:
            current = self.observe()
            message = (
                "; ".join(f"{one.code}: {one.message}" for one in request.status.error.errors) or "it says no more"
            )
            state = SubjectState() if isinstance(current, Rejected) else current.state
            return Failed(f"request {operation.seen} is {request.state.lower()}: {message}; {remedy(message)}", state)
        if request.state == "SUCCEEDED":
            return super().poll(operation, now_ns)
        if now_ns < operation.until_ns:
            return Running(f"request {operation.seen} is {request.state.lower()}")
        cancelled = self.call(
            "requests", "cancel_unary", instance_group_manager=self.pool.resource, resize_request=operation.seen
        )
        rest = cancelled.detail if isinstance(cancelled, Rejected) else "it was cancelled"
        current = self.observe()
        state = SubjectState() if isinstance(current, Rejected) else current.state
        return Failed(f"request {operation.seen} was not met in time; {rest}", state)

    def find(self, decision: Scale, observed: SubjectState | None) -> Handle | Rejected | None:
        """Find by the request's name."""
        before = decision.replicas_before if observed is None or observed.replicas is None else observed.replicas
        if decision.replicas < before:
            return super().find(decision, observed)
        name = _called(decision.id)
        request = self._request(name)
        if isinstance(request, Rejected):
            return None if request.code == "unknown_target" else request
        operation = operation_of(decision, self.pool.name, before, time.time_ns(), seen=name)
        return operation.handle(f"found as request {name}")

    def _elsewhere(self, operation: Operation, current: PoolState) -> Progress:
        if operation.verb == "grow" and current.machines == operation.before:
            return Running("the group does not count the machines yet")
        answer = f"{self.pool.resource} is set to {current.machines} machines by another client"
        return Superseded(answer, current.state)

    def _request(self, name: str) -> Any:
        return self.call("requests", "get", instance_group_manager=self.pool.resource, resize_request=name)


def _called(decision: str) -> str:
    return f"flyball-{mark(decision)}"[:63].rstrip("-")
