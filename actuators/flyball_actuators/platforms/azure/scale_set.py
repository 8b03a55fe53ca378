"""A pool backed by a virtual machine scale set. Tag and capacity are one write, conditional on the version read."""

import time
from collections.abc import Callable
from typing import Any

from flyball_actuators.platforms.azure.api import Azure, remedy
from flyball_actuators.platforms.base import Done, Failed, Handle, Progress, Rejected, Running, Superseded
from flyball_actuators.platforms.pools.backing import PoolState
from flyball_actuators.platforms.pools.marked import found_marked, type_mismatch
from flyball_actuators.platforms.pools.operation import Operation, mark, operation_of
from flyball_actuators.platforms.pools.victims import Machine, choose
from flyball_contracts.config import PoolConfig
from flyball_contracts.records import Scale, SubjectState

DECISION, LEAVING = "flyball-decision", "flyball-leaving"
_LONGEST = 256


class ScaleSet:
    """The decision is a tag of the scale set, written together with the capacity, or with the machines to delete."""

    def __init__(self, azure: Azure, pool: PoolConfig, busy: Callable[[], frozenset[str]]) -> None:
        self._azure, self._pool, self._busy = azure, pool, busy

    def observe(self) -> PoolState | Rejected:
        """Capacity, and the machines that run."""
        return self._observe()[1]

    def grow(self, decision: Scale, current: PoolState, *, dry_run: bool) -> Handle | Rejected:
        """Set capacity and tag, if the scale set is unchanged since it was read."""
        found, now = self._observe()
        if isinstance(found, Rejected) or isinstance(now, Rejected):
            return now if isinstance(now, Rejected) else _gone(self._pool)
        if now.version != current.version:
            return Rejected("conflict", f"{self._pool.resource} was changed since it was observed; decide again")
        operation = operation_of(decision, self._pool.name, current.machines, time.time_ns())
        if dry_run:
            return operation.handle(f"would set {self._pool.resource} to {decision.replicas}", dry_run=True)
        path = self._write(found, {DECISION: mark(decision.id)}, decision.replicas)
        if isinstance(path, Rejected):
            return path
        operation = operation_of(decision, self._pool.name, current.machines, time.time_ns(), call=path)
        return operation.handle(
            f"{self._pool.resource} was set from {current.machines} to {decision.replicas} machines"
        )

    def shrink(self, decision: Scale, current: PoolState, *, dry_run: bool) -> Handle | Rejected:
        """Tag the scale set with the idle machines to delete; :meth:`poll` deletes them."""
        found, now = self._observe()
        machines = self._machines()
        if isinstance(found, Rejected) or isinstance(now, Rejected):
            return now if isinstance(now, Rejected) else _gone(self._pool)
        if isinstance(machines, Rejected):
            return machines
        if now.version != current.version:
            return Rejected("conflict", f"{self._pool.resource} was changed since it was observed; decide again")
        chosen = choose(
            map(_machine, machines), current.machines - decision.replicas, "", self._busy(), decision.victims
        )
        if isinstance(chosen, Rejected):
            return chosen
        ids = ",".join(one.id for one in chosen)
        tag = f"{mark(decision.id)}:{ids}"
        if len(tag) > _LONGEST:
            return Rejected(
                "unsupported", f"{len(chosen)} machines are more than a tag of Azure can name at once; return fewer"
            )
        operation = operation_of(decision, self._pool.name, current.machines, time.time_ns(), ids=ids)
        if dry_run:
            return operation.handle(f"would delete machines {ids} of {self._pool.resource}", dry_run=True)
        path = self._write(found, {LEAVING: tag}, None)
        if isinstance(path, Rejected):
            return path
        return operation.handle(f"deletes machines {ids} of {self._pool.resource}")

    def poll(self, operation: Operation, now_ns: int) -> Progress:
        """Done once the scale set has the requested machines, and deleted ones are gone."""
        found, current = self._observe()
        machines = self._machines()
        if isinstance(current, Rejected) or isinstance(machines, Rejected):
            problem = current if isinstance(current, Rejected) else machines
            return Failed(f"unknown outcome: {problem.detail}")
        if operation.verb == "shrink":
            return self._poll_leaving(operation, current, machines, now_ns)
        name, own = self._pool.resource, _tag(found, DECISION) == mark(operation.decision)
        if current.machines < operation.machines and own:
            gone = operation.machines - current.machines
            return Failed(f"{gone} machines of {name} were evicted before all served; decide again", current.state)
        if current.machines != operation.machines:
            return Superseded(f"{name} is set to {current.machines} machines by another client", current.state)
        if current.ready == operation.machines:
            return Done(current.state, now_ns, f"{current.ready} machines of {name} run")
        late = now_ns >= operation.until_ns
        why = self._problem(operation) or ("they did not come in time" if late else "")
        if why:
            return self._give_up(operation, found if own else None, current, machines, why)
        return Running(f"{current.ready} of {operation.machines} machines of {name} run")

    def find(self, decision: Scale, observed: SubjectState | None) -> Handle | Rejected | None:
        """Find by tags."""
        found, current = self._observe()
        if isinstance(current, Rejected):
            return current
        own, _, ids = _tag(found, LEAVING).partition(":")
        if own == mark(decision.id):
            before = decision.replicas + ids.count(",") + 1
            operation = operation_of(decision, self._pool.name, before, time.time_ns(), ids=ids)
            return operation.handle(f"found on {self._pool.resource}")
        return found_marked(decision, self._pool, current, _tag(found, DECISION), observed)

    def _observe(self) -> tuple[Any, PoolState | Rejected]:
        """The scale set as Azure returns it, and its pool state."""
        found = self._azure.sets("get", self._pool.within, self._pool.resource)
        if isinstance(found, Rejected):
            return found, found
        mismatch = type_mismatch(self._pool, {found.sku.name})
        if mismatch is not None:
            return found, mismatch
        profile = found.virtual_machine_profile
        market = "spot" if profile is not None and profile.priority == "Spot" else "on_demand"
        if market != self._pool.market:
            return found, Rejected(
                "invalid", f"{self._pool.resource} is {market}, pool {self._pool.name!r} {self._pool.market}; "
                "correct its market in actuator.platforms",
            )  # fmt: skip
        machines = self._machines()
        if isinstance(machines, Rejected):
            return found, machines
        wanted = int(found.sku.capacity)
        ready = sum(_machine(one).ready for one in machines)
        return found, PoolState(wanted, ready, f"{wanted}/{_tag(found, DECISION)}/{_tag(found, LEAVING)}")

    def _machines(self) -> Any:
        return self._azure.machines(self._pool.within, self._pool.resource)

    def _write(self, found: Any, tags: dict[str, str], capacity: int | None) -> str | Rejected:
        """Write conditional on the version read; tags are replaced as a whole."""
        body: dict[str, Any] = {"tags": {**(found.tags or {}), **tags}}
        if capacity is not None:
            body["sku"] = {"name": found.sku.name, "tier": found.sku.tier, "capacity": capacity}
        return self._azure.begin(
            "begin_update",
            self._pool.within,
            self._pool.resource,
            body,
            etag=found.etag,
            match_condition=self._azure.unchanged,
        )

    def _delete(self, ids: list[str]) -> Rejected | None:
        begun = self._azure.begin(
            "begin_delete_instances", self._pool.within, self._pool.resource, {"instanceIds": ids}
        )
        return begun if isinstance(begun, Rejected) else None

    def _poll_leaving(self, operation: Operation, current: PoolState, machines: list[Any], now_ns: int) -> Progress:
        left = [one for one in machines if str(one.instance_id) in operation.machine_ids]
        if not left:
            return Done(current.state, now_ns, f"machines {operation.ids} of {self._pool.resource} are gone")
        if now_ns >= operation.until_ns:
            return Failed(f"{len(left)} machines of {self._pool.resource} do not go; look at them", current.state)
        busy = self._busy()
        stay = [_machine(one).id for one in left if _machine(one).protected or _machine(one).names & busy]
        if stay:
            text = f"machines {', '.join(stay)} were protected, or got work, since they were chosen; they stay"
            return Failed(text, current.state)
        going = [str(one.instance_id) for one in left if one.provisioning_state != "Deleting"]
        problem = self._delete(going) if going else None
        if problem is not None and problem.code != "conflict":
            return Failed(problem.detail, current.state)
        return Running(f"{len(left)} machines of {self._pool.resource} are still ending")

    def _problem(self, operation: Operation) -> str:
        """Why the operation failed, empty if it did not."""
        status = self._azure.followed(operation.call) if operation.call else None
        if status is None or isinstance(status, Rejected) or status.get("status") not in ("Failed", "Canceled"):
            return ""
        error: dict[str, Any] = status.get("error") or {}
        message = f"{error.get('code', '')}: {error.get('message', '')}"
        return f"{message}; {remedy(message) or 'look at the scale set'}"

    def _give_up(self, operation: Operation, found: Any, current: PoolState, machines: list[Any], why: str) -> Progress:
        """Withdraw the missing machines, or they would be bought later; running ones are not touched."""
        if found is None:
            return Failed(why, current.state)
        broken = [str(one.instance_id) for one in machines if not _machine(one).ready]
        here = max(current.ready, operation.before)
        back = self._delete(broken) if broken else None
        if back is None and current.machines - len(broken) > here:
            written = self._write(found, {}, here)
            back = written if isinstance(written, Rejected) else None
        rest = back.detail if back is not None else f"{self._pool.resource} has {here} again"
        state = SubjectState(replicas=here, ready=current.ready) if back is None else current.state
        return Failed(f"{operation.machines} machines were requested, {current.ready} run: {why}; {rest}", state)


def _tag(found: Any, key: str) -> str:
    tags: dict[str, Any] = found.tags or {}
    return str(tags.get(key, ""))


def _gone(pool: PoolConfig) -> Rejected:
    return Rejected("unknown_target", f"scale set {pool.resource} is gone; correct the pool in actuator.platforms")


def _machine(found: Any) -> Machine:
    profile, policy, view = found.os_profile, found.protection_policy, found.instance_view
    codes = {status.code for status in view.statuses or ()} if view is not None else set[str]()
    return Machine(
        id=str(found.instance_id),
        names=frozenset({str(found.name)} | ({str(profile.computer_name)} if profile is not None else set())),
        ready=found.provisioning_state == "Succeeded" and "PowerState/running" in codes,
        started=str(found.time_created or ""),
        protected=bool(policy is not None and policy.protect_from_scale_in),
    )
