"""A pool backed by a managed instance group, resized by absolute numbers under a request id of the decision."""

import hashlib
import time
from collections.abc import Callable
from typing import Any

from flyball_actuators.platforms.base import Done, Failed, Handle, Progress, Rejected, Running, Superseded
from flyball_actuators.platforms.gcp.api import Gcp, remedy
from flyball_actuators.platforms.pools.backing import PoolState
from flyball_actuators.platforms.pools.operation import Operation, operation_of, token_uuid
from flyball_actuators.platforms.pools.victims import Machine, choose
from flyball_contracts.config import PoolConfig
from flyball_contracts.records import Scale, SubjectState


class InstanceGroup:
    """Calls are found by their request id, which Compute Engine shows on the operation.

    Machines to delete are named, so that no busy one is deleted.
    """

    def __init__(self, gcp: Gcp, pool: PoolConfig, busy: Callable[[], frozenset[str]]) -> None:
        self.gcp, self.pool, self._busy = gcp, pool, busy

    def observe(self) -> PoolState | Rejected:
        """Target size of the group, and its machines that run."""
        group = self.call("groups", "get", instance_group_manager=self.pool.resource)
        if isinstance(group, Rejected):
            return group
        machines = self._machines()
        return machines if isinstance(machines, Rejected) else _pool_state(int(group.target_size), machines)

    def grow(self, decision: Scale, current: PoolState, *, dry_run: bool) -> Handle | Rejected:
        """Set the target size."""
        if dry_run:
            operation = operation_of(decision, self.pool.name, current.machines, time.time_ns())
            return operation.handle(f"would resize {self.pool.resource} to {decision.replicas}", dry_run=True)
        answer = self._resize(decision.replicas, token_uuid(decision))
        if isinstance(answer, Rejected):
            return answer
        operation = operation_of(decision, self.pool.name, current.machines, time.time_ns(), call=answer.name)
        return operation.handle(f"{self.pool.resource} is resized to {decision.replicas} (operation {answer.name})")

    def shrink(self, decision: Scale, current: PoolState, *, dry_run: bool) -> Handle | Rejected:
        """Delete idle machines, which lowers the target size."""
        machines = self._machines()
        if isinstance(machines, Rejected):
            return machines
        links = {_name(one): str(one.instance) for one in machines}
        known = [
            Machine(id=_name(one), names=frozenset({_name(one)}), ready=_runs(one), started=str(one.id))
            for one in machines
        ]
        chosen = choose(known, current.machines - decision.replicas, decision.id, self._busy(), decision.victims)
        if isinstance(chosen, Rejected):
            return chosen
        ids = ",".join(sorted(one.id for one in chosen))
        operation = operation_of(decision, self.pool.name, current.machines, time.time_ns(), ids=ids)
        if dry_run:
            return operation.handle(f"would delete {ids} of {self.pool.resource}", dry_run=True)
        answer = self.call(
            "groups",
            "delete_instances_unary",
            instance_group_manager=self.pool.resource,
            instance_group_managers_delete_instances_request_resource={"instances": [links[one.id] for one in chosen]},
            request_id=token_uuid(decision),
        )
        if isinstance(answer, Rejected):
            return answer
        operation = operation_of(decision, self.pool.name, current.machines, time.time_ns(), ids=ids, call=answer.name)
        return operation.handle(f"{ids} of {self.pool.resource} are deleted (operation {answer.name})")

    def poll(self, operation: Operation, now_ns: int) -> Progress:
        """Follow the operation, then the group until its machines match the request."""
        problem = self._operation_failed(operation)
        current = self.observe()
        if isinstance(current, Rejected):
            return Failed(f"unknown outcome: {current.detail}")
        if problem:
            return Failed(problem, current.state)
        if current.machines != operation.machines:
            return self._elsewhere(operation, current)
        machines = self._machines()
        if isinstance(machines, Rejected):
            return Failed(f"unknown outcome: {machines.detail}")
        left = [name for one in machines if (name := _name(one)) in operation.machine_ids]
        if not left and current.ready == len(machines) == operation.machines:
            return Done(current.state, now_ns, f"{current.ready} machines of {self.pool.resource} run")
        late = now_ns >= operation.until_ns
        why = _why(machines) or ("they did not come in time" if late else "")
        if operation.verb == "grow" and (late or remedy(why)):
            return self._give_up(operation, current, why)
        if late:
            return Failed(f"{', '.join(left)} of {self.pool.resource} do not go; look at them", current.state)
        return Running(f"{current.ready} of {operation.machines} machines of {self.pool.resource} run")

    def find(self, decision: Scale, observed: SubjectState | None) -> Handle | Rejected | None:
        """Find by request id among the zone's operations."""
        before = decision.replicas_before if observed is None or observed.replicas is None else observed.replicas
        found = self.call("operations", "list", filter=f'clientOperationId = "{token_uuid(decision)}"')
        if isinstance(found, Rejected):
            return found
        if not found:
            return None
        operation = operation_of(decision, self.pool.name, before, time.time_ns(), call=found[0].name)
        return operation.handle(f"found as operation {found[0].name}")

    def call(self, client: str, method: str, **request: Any) -> Any:
        """Call in the pool's zone."""
        return self.gcp.call(client, method, self.pool.within, **request)

    def _elsewhere(self, operation: Operation, current: PoolState) -> Progress:
        """Progress when the group's target size differs from the request."""
        answer = f"{self.pool.resource} is set to {current.machines} machines by another client"
        return Superseded(answer, current.state)

    def _machines(self) -> list[Any] | Rejected:
        found: list[Any] | Rejected = self.call(
            "groups", "list_managed_instances", instance_group_manager=self.pool.resource
        )
        return found

    def _resize(self, machines: int, request: str) -> Any:
        return self.call(
            "groups",
            "resize_unary",
            instance_group_manager=self.pool.resource,
            size=machines,
            request_id=request,
        )

    def _operation_failed(self, operation: Operation) -> str:
        """Why an operation failed, empty if it did not."""
        if not operation.call:
            return ""
        found = self.call("operations", "get", operation=operation.call)
        if isinstance(found, Rejected):  # operations are kept for two weeks
            return ""
        message = "; ".join(f"{one.code}: {one.message}" for one in found.error.errors)
        return f"{message}; {remedy(message) or 'look at the group'}" if message else ""

    def _give_up(self, operation: Operation, current: PoolState, why: str) -> Progress:
        """Withdraw the missing machines, or they would be bought later."""
        here = max(current.ready, operation.before)
        digest = hashlib.sha256(f"{operation.decision}/back/{here}".encode()).hexdigest()
        back = self._resize(here, f"{digest[:8]}-{digest[8:12]}-4{digest[13:16]}-8{digest[17:20]}-{digest[20:32]}")
        rest = back.detail if isinstance(back, Rejected) else f"{self.pool.resource} is set to {here} again"
        state = current.state if isinstance(back, Rejected) else SubjectState(replicas=here, ready=current.ready)
        return Failed(f"{operation.machines} machines were requested, {current.ready} run: {why}; {rest}", state)


def _pool_state(target: int, machines: list[Any]) -> PoolState:
    names = ",".join(sorted(map(_name, machines)))
    version = f"{target}/{hashlib.sha256(names.encode()).hexdigest()[:12]}"
    return PoolState(target, sum(map(_runs, machines)), version)


def _name(machine: Any) -> str:
    return str(machine.instance).rsplit("/", 1)[-1]


def _runs(machine: Any) -> bool:
    return machine.instance_status == "RUNNING" and machine.current_action in ("NONE", "")


def _why(machines: list[Any]) -> str:
    """Compute Engine's errors for machines that it could not create."""
    errors = {f"{e.code}: {e.message}" for one in machines for e in one.last_attempt.errors.errors}
    message = "; ".join(sorted(errors))
    return f"{message}; {remedy(message)}" if remedy(message) else message
