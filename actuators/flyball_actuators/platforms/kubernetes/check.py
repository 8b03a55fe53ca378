"""Checks a node by a Job, and uncordons the node if the Job succeeds.

An open node is cordoned first; a node that another client has cordoned is left alone.

The scheduler, which knows the free GPUs, places the Job; the Job tolerates the cordon and can run on no other node. Its
name is derived from the decision, so that it is created once and can be found again. Kubernetes deletes it a day later.
"""

import hashlib
from typing import Any

from flyball_actuators.platforms.base import Done, Failed, Handle, PlatformError, Progress, Rejected, Running
from flyball_actuators.platforms.kubernetes.api import JSON, Api, refused
from flyball_actuators.platforms.kubernetes.cordon import closed_by_others, cordon, uncordon
from flyball_actuators.platforms.kubernetes.kinds import Object, annotation_of, status_of
from flyball_actuators.platforms.kubernetes.operation import Operation, manager
from flyball_contracts.burn_in import GPUS, RESULT, summary, unchecked
from flyball_contracts.config import CheckConfig
from flyball_contracts.nodes.kubernetes import CORDONED
from flyball_contracts.records import Check, SubjectState

GPU, GPU_COUNT = "nvidia.com/gpu", "nvidia.com/gpu.count"
NAMESPACE = "flyball-check"
DEADLINE_S, KEPT_S = 1_800, 86_400
MESSAGE = "/dev/termination-log"
LONGEST = 1_000
_CLOSED = SubjectState(suspended=True)


class Checks:
    """The node checks of one platform."""

    def __init__(self, api: Api, config: CheckConfig, where: str) -> None:
        self._api, self._config, self._where = api, config, where

    def observe(self, decision: Check) -> SubjectState | Rejected:
        """Whether the node is cordoned."""
        node = self._node(decision.node)
        return node if isinstance(node, Rejected) else _shown(node)

    def submit(self, decision: Check, observed: SubjectState, *, dry_run: bool) -> Handle | Rejected:
        """Cordon the node if it is open, and create the Job; refused if the node changed or others cordoned it."""
        config = self._config
        if not config.image:
            return Rejected(
                "unsupported",
                f"no image for checks is configured; name one with flyball[worker] in {self._where}.check.image, or "
                "check the node by hand, then run flyball incidents readmit",
            )
        node = self._node(decision.node)
        if isinstance(node, Rejected):
            return node
        if _shown(node).version != observed.version:
            return Rejected("conflict", f"node {decision.node} was changed since it was observed; decide again")
        closed = bool(node["spec"].get("unschedulable"))
        if closed and (not annotation_of(node, CORDONED) or closed_by_others(node)):
            return Rejected("conflict", f"node {decision.node} was cordoned by another user, who has to uncordon it")
        there, has = gpus_of(node)
        gpus = len(decision.devices) or has
        if there < max(gpus, has):
            return Rejected(
                "conflict",
                f"{gpus} GPUs of node {decision.node} are to be checked, it has {max(gpus, has)}, and its device "
                f"plugin offers {there}; reset or replace those that it takes for sick",
            )
        body = job_of(decision, config, gpus)
        query = (("fieldManager", manager(decision.id)), *((("dryRun", "All"),) if dry_run else ()))
        made = self._api.call("POST", self._jobs(), body, query, JSON, known=(409,))
        if not made.ok and made.status != 409:  # a Job that exists already is this one
            return refused(made, f"making a Job in namespace {NAMESPACE} that checks node {decision.node}")
        problem = cordon(self._api, decision.node, decision.id, query, "checked")
        if dry_run and problem is not None:  # otherwise `poll` tries again: the Job exists and identifies the check
            return problem
        name = body["metadata"]["name"]
        does = "would check" if dry_run else "checks"
        return Handle(
            operation="" if dry_run else self._operation(decision, name).encode(),
            expected=decision.expected_state(observed),
            answer=f"Job {NAMESPACE}/{name} {does} {gpus} GPUs of node {decision.node}",
        )

    def poll(self, operation: Operation, now_ns: int) -> Progress:
        """Progress of the Job; uncordons the node once it has succeeded."""
        job, about = f"Job {operation.namespace}/{operation.name}", f"node {operation.node}"
        answer = self._api.get(f"{self._jobs(operation.namespace)}/{operation.name}")
        if answer.status == 404:
            return Failed(f"{job} is gone before it had ended; {about} stays cordoned", _CLOSED)
        if not answer.ok:
            raise PlatformError(refused(answer, f"reading {job}").detail)
        who = (("fieldManager", manager(operation.decision)),)
        # Again at each poll: the end of a move would open the node.
        problem = cordon(self._api, operation.node, operation.decision, who, "checked")
        closed = "stays cordoned" if problem is None else f"could not be cordoned: {problem.detail}"
        ended = {one["type"]: one for one in status_of(answer.body).get("conditions") or () if one["status"] == "True"}
        result, pod = self._result_of(operation)
        if "Failed" in ended:
            why = ended["Failed"].get("message") or ended["Failed"].get("reason", "")
            return Failed(
                f"{job} failed: {summary(result)[:LONGEST] or why or 'it does not say why'}; {about} {closed}",
                _CLOSED,
            )
        if "Complete" not in ended:
            return Running(f"{job} checks {about}{f': {pod}' if pod else ''}")
        if left := unchecked(result, operation.pods.split()):
            return Failed(f"{job} did not show that it checked {', '.join(left)}; {about} {closed}", _CLOSED)
        return self._open(
            operation, now_ns, f"{job} found {about} well: {summary(result)[:LONGEST] or 'it ended with status 0'}"
        )

    def find(self, decision: Check) -> Handle | None:
        """The Job of a decision, if it was ever created."""
        name = name_of(decision)
        answer = self._api.get(f"{self._jobs()}/{name}")
        if not answer.ok:
            return None
        operation = self._operation(decision, name)
        return Handle(operation=operation.encode(), expected=decision.expected_state(_CLOSED), answer="found as a Job")

    def _open(self, operation: Operation, now_ns: int, text: str) -> Progress:
        """Remove Flyball's cordon, whichever decision set it; a cordon that others have set since stays."""
        node = self._node(operation.node)
        if isinstance(node, Rejected):
            return Failed(f"{text}, but {node.detail}", _CLOSED)
        opened = SubjectState(replicas=0, suspended=False)
        if not node["spec"].get("unschedulable"):
            return Done(opened, now_ns, text)
        if not annotation_of(node, CORDONED) or closed_by_others(node):
            return Failed(f"{text}; another user has cordoned it since, and has to uncordon it", _CLOSED)
        done = uncordon(self._api, node, operation.decision)
        if done.ok:
            return Done(opened, now_ns, text)
        return Running(f"node {operation.node} is still cordoned: {done.message}")  # the next poll tries again

    def _result_of(self, operation: Operation) -> tuple[str, str]:
        """Termination message of the check, and why its pod is not running, where known."""
        query = (("labelSelector", f"batch.kubernetes.io/job-name={operation.name}"),)
        pods = self._api.listed(f"/api/v1/namespaces/{operation.namespace}/pods", query)
        if not pods.ok or not pods.body:
            return "", ""
        status = status_of(pods.body[-1])
        states: list[dict[str, Any]] = [one.get("state") or {} for one in status.get("containerStatuses") or ()]
        ended = [state["terminated"] for state in states if "terminated" in state]
        result = str(ended[0].get("message") or f"exit status {ended[0].get('exitCode')}") if ended else ""
        waits = [state["waiting"].get("reason", "") for state in states if "waiting" in state]
        unplaced = [one.get("message", "") for one in status.get("conditions") or () if one.get("status") == "False"]
        return result, next((one for one in (*waits, *unplaced) if one), "")

    def _node(self, name: str) -> Object | Rejected:
        answer = self._api.get(f"/api/v1/nodes/{name}")
        return dict(answer.body) if answer.ok else refused(answer, f"reading node {name}")

    def _jobs(self, namespace: str = "") -> str:
        return f"/apis/batch/v1/namespaces/{namespace or NAMESPACE}/jobs"

    def _operation(self, decision: Check, name: str) -> Operation:
        return Operation(
            verb="check", decision=decision.id, kind="Job", namespace=NAMESPACE, name=name, uid="",
            node=decision.node, pods=" ".join(decision.devices),
        )  # fmt: skip


def gpus_of(node: Object) -> tuple[int, int]:
    """GPUs that a node's device plugin offers, and GPUs that the node has, whether offered or not."""
    status = status_of(node)
    labels: dict[str, str] = node["metadata"].get("labels") or {}
    there, shown = (int(status.get(field, {}).get(GPU, 0)) for field in ("allocatable", "capacity"))
    label = str(labels.get(GPU_COUNT, ""))
    return there, max(there, shown, int(label) if label.isdigit() and not shown else 0)


def name_of(decision: Check) -> str:
    """Name of a decision's Job."""
    return f"flyball-check-{hashlib.sha256(decision.id.encode()).hexdigest()[:20]}"


def job_of(decision: Check, config: CheckConfig, gpus: int) -> Object:
    """The Job of a decision; it satisfies the restricted pod security standard."""
    labels = {"app.kubernetes.io/name": "flyball-check"}
    here = {"key": "metadata.name", "operator": "In", "values": [decision.node]}
    container: Object = {
        "name": "check",
        "image": config.image,
        "command": list(config.command),
        "env": [
            {"name": GPUS, "value": str(gpus)},
            {"name": RESULT, "value": MESSAGE},
            {"name": "HOME", "value": "/tmp"},
        ],
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}, {"name": "shm", "mountPath": "/dev/shm"}],
    }
    if gpus:
        container["resources"] = {"limits": {GPU: gpus}}
    pod: Object = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": [here]}]}
            }
        },
        "tolerations": [{"operator": "Exists", "effect": "NoSchedule"}],
        "securityContext": {
            "runAsNonRoot": True, "runAsUser": 65_532, "seccompProfile": {"type": "RuntimeDefault"},
        },
        # GPUs without links add up numbers through shared memory, of which a container has 64 MiB otherwise.
        "volumes": [{"name": "tmp", "emptyDir": {}}, {"name": "shm", "emptyDir": {"medium": "Memory"}}],
        "containers": [container],
    }  # fmt: skip
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name_of(decision), "namespace": NAMESPACE, "labels": labels},
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": DEADLINE_S,
            "ttlSecondsAfterFinished": KEPT_S,
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def _shown(node: Object) -> SubjectState:
    closed = bool(node["spec"].get("unschedulable"))
    return SubjectState(suspended=closed, version=f"{node['metadata']['uid']}/{closed}/{annotation_of(node, CORDONED)}")
