"""The jobs that Kueue queues in one cluster, as a platform; see :class:`KueuePlatform`."""

import time

import msgspec

from flyball_actuators.platforms.base import (
    Capabilities,
    Done,
    Failed,
    Handle,
    PlatformError,
    Progress,
    Promises,
    Rejected,
    Running,
    Superseded,
)
from flyball_actuators.platforms.kubernetes.api import MERGE, Answer, Api, refused
from flyball_actuators.platforms.kubernetes.kinds import QUEUED, Object, field_manager_of
from flyball_actuators.platforms.kubernetes.operation import OVERWRITTEN, manager
from flyball_actuators.platforms.kubernetes.pods import managed_by
from flyball_actuators.platforms.kubernetes.replicas.count import poll_count
from flyball_actuators.platforms.kubernetes.targets import Target, Targets, unless_forbidden
from flyball_actuators.platforms.kueue.admission import CHECK, HOLD_S, AdmissionCheckController
from flyball_actuators.platforms.kueue.check import admit, evict
from flyball_actuators.platforms.kueue.entry import GROUP, Entry, entry_of
from flyball_actuators.platforms.kueue.operation import Queued, decode, queued
from flyball_actuators.platforms.kueue.place import conflicting_labels, place_of
from flyball_actuators.platforms.kueue.plan import changes, describe, unsupported
from flyball_contracts.config import PlatformConfig
from flyball_contracts.errors import ConfigError
from flyball_contracts.records import AnyDecision, Scale, SetsReplicas, SubjectState

RBAC = "infra/kubernetes/kueue.yaml"
_TRIES = 4


class KueuePlatform:
    """Starts and stops queued jobs of some namespaces through Kueue, and chooses their nodes.

    A gang is stopped by ``spec.active: false`` of its Workload; Kueue does the rest. It starts once Kueue has quota for
    it, on the nodes that Flyball's admission check requires. Flyball writes to no job. With ``live`` false the check
    holds nothing back. Raises :class:`ConfigError` for what cannot be served.
    """

    name = "kueue"
    capabilities = Capabilities(
        kinds=frozenset({"Scale", "Preempt"}),
        tracks=True,
        promises=Promises(dry_run="platform", rollback=True, gang=True),
    )

    def __init__(
        self,
        entry: PlatformConfig,
        where: str = "platform",
        *,
        live: bool = True,
        check: str = CHECK,
        hold_s: float = HOLD_S,
    ) -> None:
        if not entry.namespaces:
            raise ConfigError(f"{where}.namespaces: none is named; list those whose queues Flyball may command")
        self._api = Api(entry.kubeconfig, entry.timeout_s, where, RBAC)
        self._targets = Targets(self._api, entry.namespaces, QUEUED)
        self._check = check
        self._admission = AdmissionCheckController(
            self._api, check, entry.namespaces, hold_s if live else 0.0, entry.poll_s
        )

    def close(self) -> None:
        """Stop the admission check controller."""
        self._admission.close()

    def observe(self, decision: AnyDecision) -> SubjectState | Rejected:
        """Pods that run or will run, and whether Kueue suspends the job."""
        found = self._find(decision.workload)
        if isinstance(found, Rejected):
            return found
        target, obj, entry = found
        shown = target.controller.status(obj)
        return SubjectState(
            replicas=shown.replicas, ready=shown.ready, suspended=shown.suspended, version=entry.version
        )

    def submit(self, decision: AnyDecision, observed: SubjectState, *, dry_run: bool) -> Handle | Rejected:
        """Change the job's Workload if it is unchanged since it was observed."""
        found = self._find(decision.workload)
        if isinstance(found, Rejected):
            return found
        target, obj, entry = found
        if entry.version != observed.version:
            return Rejected("conflict", f"{target} was changed since it was observed; decide again on what it is now")
        problem = unsupported(target, obj, entry, decision)
        if problem is not None:
            return problem
        assert isinstance(decision, SetsReplicas)
        place = place_of(self._api, decision) if isinstance(decision, Scale) else {}
        if isinstance(place, Rejected):
            return place
        if place and not self._admission.is_configured():
            return Rejected(
                "unsupported",
                f"the decision names where {target} is to run, and the cluster has no AdmissionCheck {self._check}; "
                "make it as infra/examples/kueue.yaml does",
            )
        activated = bool(decision.replicas) and not entry.active
        operation = queued(decision, target, obj, place, time.time_ns(), activated=activated)
        runs = bool(place and target.controller.status(obj).replicas)
        to_write = {} if runs else changes(decision, obj, entry)
        if decision.replicas and not dry_run:  # before the write, or the check may admit it without a place
            self._admission.claim(operation.uid, decision.id)
        evicted = self._apply(operation, entry, to_write, runs=runs, dry_run=dry_run)
        if isinstance(evicted, Rejected):
            self._admission.release(operation.uid, decision.id)
            return evicted
        operation = msgspec.structs.replace(operation, moves=evicted)
        return Handle(
            operation="" if dry_run else operation.encode(),
            expected=decision.expected_state(SubjectState()),
            answer=describe(target, obj, entry, decision, place, to_write, dry_run=dry_run),
        )

    def poll(self, handle: Handle) -> Progress:
        """Progress in Kueue; once a gang has quota, the check admits it to the decided nodes."""
        if handle.operation == OVERWRITTEN:
            return Failed(f"unknown outcome: {handle.answer}")
        operation, now_ns = decode(handle.operation), time.time_ns()
        if operation.replicas:
            self._admission.claim(operation.uid, operation.decision)
        progress = self._progress(operation, now_ns)
        if isinstance(progress, Running) and now_ns >= operation.until_ns:
            progress = self._give_up(operation, progress.answer)
        if isinstance(progress, Running):
            return progress
        self._admission.release(operation.uid, operation.decision)
        if isinstance(progress, Done) and operation.place:  # the gang is placed, so it has the chosen offer
            return progress._replace(observed=msgspec.structs.replace(progress.observed, mix=handle.expected.mix))
        return progress

    def find(self, decision: AnyDecision, observed: SubjectState | None) -> Handle | None:
        """Find the operation by the decision's field manager on the Workload.

        A start that had nothing to write may be submitted again, which changes nothing.
        """
        found = unless_forbidden(self._find(decision.workload))
        if isinstance(found, Rejected):
            return Handle(operation=OVERWRITTEN, expected=SubjectState(), answer=found.detail)
        if not isinstance(decision, SetsReplicas):
            return None
        target, obj, entry = found
        expected = decision.expected_state(SubjectState())
        if managed_by(entry.obj, manager(decision.id)):
            place = place_of(self._api, decision) if isinstance(decision, Scale) else {}
            if isinstance(place, Rejected):
                raise PlatformError(place.detail)
            activated = bool(decision.replicas) and field_manager_of(entry.obj, "active") == repr(manager(decision.id))
            operation = queued(decision, target, obj, place, time.time_ns(), activated=activated)
            return Handle(operation=operation.encode(), expected=expected, answer="found on the entry in Kueue")
        if not changes(decision, obj, entry) or (observed is not None and entry.version == observed.version):
            return None
        answer = f"{target} was changed in Kueue by another client since the decision was claimed; look at it"
        return Handle(operation=OVERWRITTEN, expected=expected, answer=answer)

    def _find(self, workload: str) -> tuple[Target, Object, Entry] | Rejected:
        found = self._targets.find(workload)
        if isinstance(found, Rejected):
            return found
        entry = entry_of(self._api, *found)
        return entry if isinstance(entry, Rejected) else (*found, entry)

    def _apply(
        self, operation: Queued, entry: Entry, to_write: Object, *, runs: bool, dry_run: bool
    ) -> Rejected | bool:
        """Write the changes; return whether Kueue must stop a gang that runs elsewhere."""
        if to_write:
            answer = self._write(entry, to_write, operation.decision, dry_run=dry_run)
            if not answer.ok:
                return refused(answer, f"setting {operation.target} in Kueue")
        return self._evict_misplaced(operation, entry, dry_run=dry_run) if runs else False

    def _write(self, entry: Entry, changes: Object, decision: str, *, dry_run: bool) -> Answer:
        """Change a Workload's specification if its generation is unchanged.

        Kueue writes the status often; such changes do not matter.
        """
        query = (("fieldManager", manager(decision)), *((("dryRun", "All"),) if dry_run else ()))
        tries = 0
        while True:
            answer = self._api.get(entry.path)
            if not answer.ok:
                return answer
            if Entry(answer.body).version != entry.version:
                return answer._replace(status=409, body={"message": f"Workload {entry.name} was changed meanwhile"})
            named = {"name": entry.name, "resourceVersion": answer.body["metadata"]["resourceVersion"]}
            body = {"apiVersion": GROUP, "kind": "Workload", "metadata": named, "spec": changes}
            answer = self._api.call("PATCH", entry.path, body, query, MERGE)
            tries += 1
            if answer.status != 409 or tries == _TRIES:
                return answer

    def _evict_misplaced(self, operation: Queued, entry: Entry, *, dry_run: bool) -> Rejected | bool:
        """Let Kueue evict a running gang unless it is placed as decided; return whether it was evicted."""
        check = entry.check(self._check)
        if check is None:
            return Rejected("unsupported", f"cluster queue {entry.queue} does not use admission check {self._check}")
        if self._placed(operation, entry):
            return False
        by = manager(operation.decision)
        done = evict(
            self._api, entry, self._check, check, f"decision {operation.decision} moves it", by, dry_run=dry_run
        )
        if isinstance(done, Rejected):
            return done
        return done or Rejected("conflict", f"{operation.target} changed while it was written; decide again")

    def _progress(self, operation: Queued, now_ns: int) -> Progress:
        target = operation.target
        obj = unless_forbidden(self._targets.read(target))
        if isinstance(obj, Rejected) or obj["metadata"]["uid"] != operation.uid:
            return Failed(f"{target} was deleted")
        shown = target.controller.status(obj)
        state = SubjectState(replicas=shown.replicas, ready=shown.ready, suspended=shown.suspended)
        if shown.finished:
            return Superseded(f"{target} has ended by itself", state)
        entry = entry_of(self._api, target, obj)
        if isinstance(entry, Rejected):
            return Running(entry.detail)
        if entry.active != bool(operation.replicas):
            now = "may run again" if entry.active else "is to stop"
            return Superseded(f"{target} {now} in Kueue, by {field_manager_of(entry.obj, 'active')}", state)
        if not operation.replicas:
            if shown.replicas or entry.assignments:  # others can use its quota only once Kueue has taken it back
                return Running(f"Kueue is to stop {target}")
            return poll_count(self._api, _without_end(operation), now_ns)
        if not entry.is_true("Admitted"):
            return self._admit(operation, entry, state)
        leaves = operation.moves or entry.is_true("Evicted")  # an eviction ends when Kueue has taken the quota back
        if leaves and not self._placed(operation, entry):
            return Running(f"Kueue is to stop {target}, and to admit it elsewhere")
        if operation.place and not self._placed(operation, entry):
            return Failed(f"{target} was admitted before Flyball chose its nodes; it runs where Kueue placed it", state)
        if shown.replicas != operation.replicas:
            return Running(f"Kueue has admitted {target}, and is to start it")
        return poll_count(self._api, _without_end(operation), now_ns)

    def _admit(self, operation: Queued, entry: Entry, state: SubjectState) -> Progress:
        """Set the node labels of a gang as soon as it has quota."""
        target = operation.target
        if not entry.is_true("QuotaReserved"):
            return Running(f"{target} waits: {entry.waits_for}")
        check = entry.check(self._check) if self._check else None
        if check is None:
            if operation.place and entry.has_checks:
                return Failed(
                    f"cluster queue {entry.queue} does not use admission check {self._check}, so Flyball cannot "
                    f"choose where {target} runs; add it to admissionChecksStrategy",
                    state,
                )
            return Running(f"{target} has quota of {entry.queue}, and waits for other checks")
        if check.state != "Pending":
            return Running(f"{target} has quota of {entry.queue}; Flyball's check is {check.state}")
        conflict = conflicting_labels(self._api, entry, operation.selector)
        if conflict:
            return self._give_up(operation, f"{conflict}, and the decision requires {operation.place}", now=True)
        done = admit(
            self._api, entry, self._check, check, f"decision {operation.decision}", operation.selector,
            manager(operation.decision),
        )  # fmt: skip
        if isinstance(done, Rejected):
            return Running(f"{target} has quota of {entry.queue}: {done.detail}")
        where = f" to nodes with {operation.place}" if operation.place else ""
        return Running(f"{target} has quota of {entry.queue}, and is admitted{where}")

    def _placed(self, operation: Queued, entry: Entry) -> bool:
        check = entry.check(self._check)
        updates = check.updates if check is not None else []
        return bool(updates) and all(
            (update.get("nodeSelector") or {}).items() >= operation.selector.items() for update in updates
        )

    def _give_up(self, operation: Queued, why: str, *, now: bool = False) -> Failed:
        """Restore the earlier state: deactivate a job that the decision activated and that does not run."""
        target = operation.target
        late = "" if now else "not within 15 minutes: "
        obj = self._targets.read(target)
        if isinstance(obj, Rejected):
            return Failed(f"{late}{why}")
        shown = target.controller.status(obj)
        state = SubjectState(replicas=shown.replicas, ready=shown.ready, suspended=shown.suspended)
        found = entry_of(self._api, target, obj)
        if isinstance(found, Rejected) or not operation.woke or found.is_true("Admitted"):
            return Failed(f"{late}{why}", state)
        answer = self._write(found, {"active": False}, operation.decision, dry_run=False)
        again = "it is inactive again" if answer.ok else f"it is still active ({answer.message}); look at it"
        return Failed(f"{late}{why}; {target}: {again}", state)


def _without_end(operation: Queued) -> Queued:
    """The operation without its deadline, for :func:`poll_count`: this platform enforces the deadline itself."""
    return msgspec.structs.replace(operation, until_ns=0)
