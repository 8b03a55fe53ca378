"""A replica leaves its node: the node takes nothing new, the pod is evicted, and its replacement becomes ready.

Each step is safe to repeat, and what was done stands on the objects themselves, so that whoever polls next goes on.
"""

import random
import time
from threading import Lock
from typing import Any

from flyball_actuators.platforms.base import Done, Failed, Handle, Progress, Rejected, Running
from flyball_actuators.platforms.kubernetes.api import JSON, MERGE, Api, refused
from flyball_actuators.platforms.kubernetes.kinds import Object, note_of
from flyball_actuators.platforms.kubernetes.operation import Operation, manager, operation_of
from flyball_actuators.platforms.kubernetes.pods import own_pod, place_of, pod_path
from flyball_actuators.platforms.kubernetes.targets import Target
from flyball_actuators.platforms.states import expected_of
from flyball_contracts.records import Migrate, SubjectState

CORDONED = "flyball.dev/cordoned-for"
MOVED = "flyball.dev/moved-for"
AGAIN_S = 10.0
GIVE_UP_S = 900.0
_NS = 1_000_000_000
_TRIES = 8
Query = tuple[tuple[str, str], ...]


class Migrations:
    """Evictions of one platform; a disruption budget that is spent is asked again after 10 to 15 s."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._lock = Lock()
        self._next_s: dict[str, float] = {}

    def submit(
        self, target: Target, thing: Object, decision: Migrate, now_ns: int, *, dry_run: bool
    ) -> Handle | Rejected:
        """Cordon the node, note on the pod why it goes, and ask for its eviction."""
        api = self._api
        pod = own_pod(api, target, thing["metadata"]["uid"], decision.replica)
        if isinstance(pod, Rejected):
            return pod
        if pod is None or place_of(pod) != decision.from_node:
            return Rejected(
                "conflict",
                f"pod {target.namespace}/{decision.replica} is not on {decision.from_node} any more; decide again",
            )
        query = (("fieldManager", manager(decision.id)), *((("dryRun", "All"),) if dry_run else ()))
        body: Any = {"metadata": {"annotations": {MOVED: decision.id}, "uid": pod["metadata"]["uid"]}}
        noted = api.call("PATCH", pod_path(target.namespace, decision.replica), body, query, MERGE)
        if not noted.ok:
            return refused(noted, f"marking pod {target.namespace}/{decision.replica}")
        operation = _operation(target, thing, decision, pod["metadata"]["uid"], now_ns)
        problem = self._cordon(operation, query)
        if problem is not None:  # nothing was changed, so nothing is left behind
            body["metadata"]["annotations"][MOVED] = None
            api.call("PATCH", pod_path(target.namespace, decision.replica), body, query, MERGE)
            return problem
        expected = expected_of(decision, _state(target, thing))
        if dry_run:
            return Handle(operation="", expected=expected, answer=f"would be: {self._evict(operation, dry_run=True)}")
        return Handle(operation=operation.encode(), expected=expected, answer=self._evict(operation))

    def watch(self, operation: Operation, now_ns: int) -> Progress:
        """Ask again where the budget allowed nothing; done once the controller has all its replicas elsewhere."""
        api, target = self._api, operation.target
        answer = api.get(target.path)
        if answer.status == 404 or (answer.ok and answer.body["metadata"]["uid"] != operation.uid):
            return self._ended(operation, Failed(f"{target} is gone; whoever deleted it has decided otherwise"))
        if not answer.ok:
            return Failed(f"unknown outcome: {refused(answer, f'reading {target}').detail}")
        shown = target.of.show(answer.body)
        found = api.get(pod_path(operation.namespace, operation.pod))
        pod = found.body if found.ok else None
        same = pod is not None and pod["metadata"]["uid"] == operation.pod_uid
        where = place_of(pod) if pod is not None else ""
        nodes = {operation.pod: where} if where else {}  # a Deployment's new pod has another name
        state = SubjectState(replicas=shown.replicas, ready=shown.ready, nodes=nodes)
        if same and pod is not None and "deletionTimestamp" not in pod["metadata"]:
            if now_ns >= operation.until_ns:
                problem = f"no eviction of {operation.pod} was allowed for {GIVE_UP_S:.0f} s"
                return self._ended(operation, Failed(f"{problem}; look at its disruption budget", state))
            return Running(self._evict(operation))
        if same or shown.ready < shown.replicas or shown.present > shown.replicas:
            said = f"{target} has {shown.ready} of {shown.replicas} replicas ready"
            if now_ns >= operation.until_ns:
                return self._ended(
                    operation, Failed(f"{operation.pod} is gone, and {said} after {GIVE_UP_S:.0f} s", state)
                )
            return Running(said)
        place = f"; it runs on {where}" if where else ""
        kept = f"; node {operation.node} stays cordoned until somebody has checked it" if operation.keep_cordon else ""
        return self._ended(operation, Done(state, now_ns, f"{operation.pod} has left {operation.node}{place}{kept}"))

    def find(self, target: Target, thing: Object, decision: Migrate, now_ns: int) -> Handle | None:
        """The eviction of a decision that may have been asked for: the pod says so, or is not there any more."""
        answer = self._api.get(pod_path(target.namespace, decision.replica))
        uid = ""
        if answer.ok and place_of(answer.body) == decision.from_node:
            metadata = answer.body["metadata"]
            if note_of(answer.body, MOVED) != decision.id:
                return None
            uid = metadata["uid"]
        operation = _operation(target, thing, decision, uid, now_ns)
        expected = expected_of(decision, _state(target, thing))
        return Handle(operation=operation.encode(), expected=expected, answer="found on the pod")

    def _cordon(self, operation: Operation, query: Query) -> Rejected | None:
        """Let a node take nothing new, unless it does not anyway: then it is somebody else's, and stays theirs."""
        path = f"/api/v1/nodes/{operation.node}"
        for _ in range(_TRIES):
            answer = self._api.get(path)
            if not answer.ok:
                return refused(answer, f"reading node {operation.node}")
            if answer.body["spec"].get("unschedulable"):
                return None
            metadata = {
                "annotations": {CORDONED: operation.decision},
                "resourceVersion": answer.body["metadata"]["resourceVersion"],
            }
            done = self._api.call("PATCH", path, {"metadata": metadata, "spec": {"unschedulable": True}}, query, MERGE)
            if done.ok:
                return None
            if done.status != 409:
                return refused(done, f"cordoning node {operation.node}")
        return Rejected(
            "conflict",
            f"node {operation.node} changed {_TRIES} times while it was cordoned; decide again when it is calm",
        )

    def _evict(self, operation: Operation, *, dry_run: bool = False) -> str:
        """Ask for the eviction where it is time to; the words of the answer."""
        now_s = time.monotonic()
        with self._lock:
            if now_s < self._next_s.get(operation.decision, 0.0):
                return f"{operation.pod} waits for its disruption budget"
            if not dry_run:  # jitter spreads those that wait; nothing is decided by it
                self._next_s[operation.decision] = now_s + AGAIN_S * random.uniform(1.0, 1.5)
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": operation.pod, "namespace": operation.namespace},
            "deleteOptions": {"preconditions": {"uid": operation.pod_uid}},
        }
        path = f"{pod_path(operation.namespace, operation.pod)}/eviction"
        query: Query = (("dryRun", "All"),) if dry_run else ()
        problem = self._cordon(operation, (("fieldManager", manager(operation.decision)), *query))
        if problem is not None:  # somebody may have been killed before it was
            return problem.detail
        answer = self._api.call("POST", path, body, query, JSON, known=(429,))
        if answer.ok:
            audit = f" (audit id {answer.audit_id})" if answer.audit_id else ""
            return f"{operation.pod} is evicted from {operation.node}{audit}"
        if answer.status == 404:
            return f"{operation.pod} is gone"
        if answer.status == 429:
            return f"{operation.pod} waits for its disruption budget: {answer.message}"
        return refused(answer, f"evicting {operation.pod}").detail

    def _ended(self, operation: Operation, progress: Progress) -> Progress:
        """Give a node back that we have cordoned, unless one of its devices is the reason."""
        with self._lock:
            self._next_s.pop(operation.decision, None)
        if operation.keep_cordon and isinstance(progress, Done):
            return progress
        path = f"/api/v1/nodes/{operation.node}"
        answer = self._api.get(path)
        if not answer.ok or note_of(answer.body, CORDONED) != operation.decision:
            return progress
        body = {
            "metadata": {
                "annotations": {CORDONED: None},
                "resourceVersion": answer.body["metadata"]["resourceVersion"],
            },
            "spec": {"unschedulable": None},
        }
        done = self._api.call("PATCH", path, body, (("fieldManager", manager(operation.decision)),), MERGE)
        if done.ok:
            return progress
        return Running(f"node {operation.node} is still cordoned: {done.message}")  # the next look tries again


def _operation(target: Target, thing: Object, decision: Migrate, pod_uid: str, now_ns: int) -> Operation:
    return operation_of(
        "migrate",
        decision,
        target,
        thing,
        pod=decision.replica,
        pod_uid=pod_uid,
        node=decision.from_node,
        keep_cordon=bool(decision.from_device),
        until_ns=now_ns + round(GIVE_UP_S * _NS),
    )


def _state(target: Target, thing: Object) -> SubjectState:
    replicas = target.of.show(thing).replicas
    return SubjectState(replicas=replicas, ready=replicas)
