"""Moves a replica off its node: cordon the node, evict the pod, wait until the replacement is ready.

A gang moves as a whole. Before it moves, checkpoints are confirmed and traffic is drained (:mod:`.saga`). Each step is
safe to repeat, and progress is recorded on the objects, so that any process can continue.
"""

import random
import time
from threading import Lock

from flyball_actuators.platforms.base import (
    Done,
    Failed,
    Handle,
    PlatformError,
    Progress,
    Rejected,
    Running,
    Superseded,
)
from flyball_actuators.platforms.kubernetes.api import JSON, Api, refused
from flyball_actuators.platforms.kubernetes.cordon import Query, Until, cordon, uncordon
from flyball_actuators.platforms.kubernetes.kinds import Object, annotation_of, is_true
from flyball_actuators.platforms.kubernetes.operation import OVERWRITTEN, Operation, manager, names_of, operation_of
from flyball_actuators.platforms.kubernetes.pods import node_of_pod, own_pod, pod_path, pods_of
from flyball_actuators.platforms.kubernetes.saga import (
    MARK,
    exceeded_budget,
    gang_of,
    mark_pods,
    preparation_timeout_s,
    prepare,
    unmark_pods,
)
from flyball_actuators.platforms.kubernetes.targets import Target, lost, read_object
from flyball_contracts.nodes.kubernetes import CORDONED
from flyball_contracts.records import Migrate, SubjectState

AGAIN_S = 10.0
GIVE_UP_S = 900.0
_NS = 1_000_000_000


class Migrations:
    """Evictions of one platform; an exhausted disruption budget is retried after 10 to 15 s."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._lock = Lock()
        self._next_s: dict[str, float] = {}

    def submit(
        self, target: Target, obj: Object, decision: Migrate, now_ns: int, *, dry_run: bool
    ) -> Handle | Rejected:
        """Cordon the node, annotate the pods with the decision, and begin; undone if one of these fails."""
        api = self._api
        pod = own_pod(api, target, obj["metadata"]["uid"], decision.replica)
        if isinstance(pod, Rejected):
            return pod
        if pod is None or node_of_pod(pod) != decision.from_node:
            return Rejected(
                "conflict",
                f"pod {target.namespace}/{decision.replica} is not on {decision.from_node} any more; decide again",
            )
        pods = gang_of(api, target, obj, pod)
        if isinstance(pods, Rejected):
            return pods
        query = (("fieldManager", manager(decision.id)), *((("dryRun", "All"),) if dry_run else ()))
        problem = mark_pods(api, pods, decision.id, query)
        if problem is not None:
            return problem
        operation = _operation(target, obj, decision, pods, now_ns)
        problem = _cordon(api, operation, query)
        if problem is not None:
            unmark_pods(api, pods, decision.id, query)
            return problem
        expected = decision.expected_state(_state(target, obj))
        if dry_run:
            text = "; ".join(self._evict(operation, one, dry_run=True) for one in pods)
            return Handle(operation="", expected=expected, answer=f"would be: {text}")
        return Handle(operation=operation.encode(), expected=expected, answer=self._next_step(operation, pods, now_ns))

    def poll(self, operation: Operation, now_ns: int) -> Progress:
        """Do the next step; done once all replicas of the controller are ready elsewhere."""
        api, target = self._api, operation.target
        answer = read_object(api, target)
        if (end := lost(answer, target, operation.uid)) is not None:
            return self._finish(operation, [], end)
        shown = target.controller.status(answer.body)
        here, left, node_now = self._find_pods(operation)
        nodes = {operation.pod: node_now} if node_now else {}  # a Deployment's new pod has another name
        state = SubjectState(replicas=shown.replicas, ready=shown.ready, nodes=nodes)
        stay = [pod for pod in here if "deletionTimestamp" not in pod["metadata"]]
        if stay:
            if now_ns >= operation.until_ns:
                left += len(here) - len(stay)
                gone = f", and {left} of its gang have gone" if left else ""
                problem = f"no eviction of {stay[0]['metadata']['name']} was allowed in time{gone}"
                end = Failed(f"{problem}; look at its disruption budget", state)
                named = any(pod["metadata"]["name"] == operation.pod for pod in stay)
                return self._finish(operation, stay, end, left=not named)
            return Running(self._next_step(operation, stay, now_ns))
        own = pods_of(api, target, answer.body)
        serve = 0 if isinstance(own, Rejected) else sum(is_true(pod, "Ready") for pod in own)
        ready = min(shown.ready, serve)  # the controller's status may be from before the pod left
        kept = f"; node {operation.node} stays cordoned until it has been checked" if operation.keep_cordon else ""
        if shown.finished and not here:
            over = Superseded(f"{operation.pod} is gone, and {target} has ended by itself{kept}", state)
            return self._finish(operation, [], over, left=True)
        if here or ready < shown.replicas or shown.present > shown.replicas:
            text = f"{target} has {ready} of {shown.replicas} replicas ready"
            if now_ns >= operation.until_ns:
                late = Failed(f"{operation.pod} is gone, and {text} when time ran out{kept}", state)
                return self._finish(operation, [], late, left=True)
            return Running(text)
        place = f"; it runs on {node_now}" if node_now else ""
        with_it = f", and {len(operation.going) - 1} of its gang with it" if len(operation.going) > 1 else ""
        text = f"{operation.pod} has left {operation.node}{with_it}{place}{kept}"
        return self._finish(operation, [], Done(state, now_ns, text), left=True)

    def take_back(self, operation: Operation) -> Progress | None:
        """Restore pods and node if none of the pods has gone; ``None`` if one has, or the move is over."""
        here, left, _ = self._find_pods(operation)
        if left or not here or any("deletionTimestamp" in pod["metadata"] for pod in here):
            return None
        return self._finish(operation, here, Failed("nothing had gone, and all is as it was before"))

    def abandon(self, operation: Operation, progress: Running) -> Progress:
        """Open the node of a move that a newer one has overtaken, unless a check opens it; the newer keeps the pods.

        Raises :class:`PlatformError` if the node cannot be opened now.
        """
        if operation.keep_cordon:
            return progress
        ended = self._finish(operation, [], progress)
        if ended is not progress and isinstance(ended, Running):
            raise PlatformError(ended.answer)
        return progress

    def find(self, target: Target, obj: Object, decision: Migrate, now_ns: int) -> Handle | None:
        """The operation of a decision that was submitted: its pods or its node are annotated; ``None`` if it was not.

        If the pod has left its node without a trace of the decision, whether the decision moved it is unknown.
        """
        answer = self._api.get(pod_path(target.namespace, decision.replica))
        pods: list[Object] = []
        if answer.ok and node_of_pod(answer.body) == decision.from_node:
            if annotation_of(answer.body, MARK) != decision.id:
                return None
            pods = [answer.body]
        own = pods_of(self._api, target, obj)
        pods += [
            pod
            for pod in ([] if isinstance(own, Rejected) else own)
            if annotation_of(pod, MARK) == decision.id and pod["metadata"]["name"] != decision.replica
        ]
        expected = decision.expected_state(_state(target, obj))
        if not pods:
            node = self._api.get(f"/api/v1/nodes/{decision.from_node}")
            if not node.ok or annotation_of(node.body, CORDONED) != decision.id:
                left = (
                    f"{decision.replica} has left {decision.from_node}, and nothing shows that this decision moved it"
                )
                return Handle(operation=OVERWRITTEN, expected=expected, answer=f"{left}; look at both")
        operation = _operation(target, obj, decision, pods, now_ns)
        return Handle(operation=operation.encode(), expected=expected, answer="found on the pods or the node")

    def _find_pods(self, operation: Operation) -> tuple[list[Object], int, str]:
        """Pods that still exist, how many are gone, and the present node of the named replica."""
        here: list[Object] = []
        node_now = ""
        going = dict(operation.going)
        for name in {operation.pod: "", **going}:
            found = self._api.get(pod_path(operation.namespace, name))
            if not found.ok:
                continue
            if found.body["metadata"]["uid"] == going.get(name):
                here.append(found.body)
            if name == operation.pod:
                node_now = node_of_pod(found.body)
        return here, len(going) - len(here), node_now

    def _next_step(self, operation: Operation, pods: list[Object], now_ns: int) -> str:
        """Prepare the pods, then evict all of a gang or none; return the result as text."""
        whole = len(pods) == len(operation.going)
        checkpoints = ""
        if whole:  # until the first has gone nothing is lost; from then on there is no way back
            waits, checkpoints = prepare(
                self._api, pods, operation.decision, operation.begun_ns, now_ns, checkpoint=operation.checkpoint
            )
            if waits:
                return waits
        now_s = time.monotonic()
        with self._lock:
            if now_s < self._next_s.get(operation.decision, 0.0):
                return f"{operation.pod} waits for its disruption budget"
            # jitter spreads the moves that wait; no decision depends on it
            self._next_s[operation.decision] = now_s + AGAIN_S * random.uniform(1.0, 1.5)
        if whole and len(pods) > 1:
            problem = exceeded_budget(self._api, operation.namespace, pods)
            if problem:
                return problem
        return "; ".join([*([checkpoints] if checkpoints else []), *(self._evict(operation, pod) for pod in pods)])

    def _evict(self, operation: Operation, pod: Object, *, dry_run: bool = False) -> str:
        """Request an eviction; return the result as text."""
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": operation.namespace},
            "deleteOptions": {"preconditions": {"uid": uid}},
        }
        path = f"{pod_path(operation.namespace, name)}/eviction"
        # An eviction is not stored as an object: only the audit log of the API server has it.
        query: Query = (("fieldManager", manager(operation.decision)), *((("dryRun", "All"),) if dry_run else ()))
        problem = _cordon(self._api, operation, query)
        if problem is not None:  # a process may have ended before it cordoned the node
            return problem.detail
        answer = self._api.call("POST", path, body, query, JSON, known=(429,))
        if answer.ok:
            audit = f" (audit id {answer.audit_id})" if answer.audit_id else ""
            return f"{name} is evicted from {node_of_pod(pod)}{audit}"
        if answer.status == 404:
            return f"{name} is gone"
        if answer.status == 429:
            return f"{name} waits for its disruption budget: {answer.message}"
        return refused(answer, f"evicting {name}").detail

    def _finish(self, operation: Operation, stay: list[Object], progress: Progress, *, left: bool = False) -> Progress:
        """Restore pods that stay, and uncordon a node that Flyball cordoned.

        A node that its pods have ``left``, or are leaving, because of a failing device stays cordoned.
        """
        with self._lock:
            self._next_s.pop(operation.decision, None)
        unmark_pods(self._api, stay, operation.decision)
        if operation.keep_cordon and left:
            return progress
        path = f"/api/v1/nodes/{operation.node}"
        answer = self._api.get(path)
        if not answer.ok and answer.status != 404:
            raise PlatformError(refused(answer, f"reading node {operation.node}").detail)
        if not answer.ok or annotation_of(answer.body, CORDONED) != operation.decision:
            return progress
        done = uncordon(self._api, answer.body, operation.decision)
        if done.ok:
            return progress
        return Running(f"node {operation.node} is still cordoned: {done.message}")  # the next poll tries again


def _cordon(api: Api, operation: Operation, query: Query) -> Rejected | None:
    until: Until = "checked" if operation.keep_cordon else "moved"
    return cordon(api, operation.node, operation.decision, query, until)


def _operation(target: Target, obj: Object, decision: Migrate, pods: list[Object], now_ns: int) -> Operation:
    return operation_of(
        "migrate",
        decision,
        target,
        obj,
        pod=decision.replica,
        pods=names_of(pods),
        node=decision.from_node,
        keep_cordon=bool(decision.from_device),
        begun_ns=now_ns,
        until_ns=now_ns + round((GIVE_UP_S + preparation_timeout_s(pods, checkpoint=True)) * _NS),
    )


def _state(target: Target, obj: Object) -> SubjectState:
    replicas = target.controller.status(obj).replicas
    return SubjectState(replicas=replicas, ready=replicas)
