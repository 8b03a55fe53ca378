"""Chooses the pods that go when a number of replicas is lowered, by the rules of their controller.

A ReplicaSet first removes the pods that serve least: without a node, pending, not ready, of a lower deletion cost, with
more siblings on their node, ready for a shorter time (Kubernetes' ``ActivePodsWithRanks``). The chosen pods get the
lowest deletion cost, so that the ReplicaSet agrees. A StatefulSet removes the highest ordinals, a LeaderWorkerSet the
highest groups. For a Job, and for several ReplicaSets in the middle of a rollout, the choice is not known beforehand.
"""

from collections import Counter

from flyball_actuators.platforms.base import Rejected
from flyball_actuators.platforms.kubernetes.api import MERGE, Api
from flyball_actuators.platforms.kubernetes.kinds import Object, annotation_of, is_true, status_of
from flyball_actuators.platforms.kubernetes.operation import Operation, manager
from flyball_actuators.platforms.kubernetes.pods import node_of_pod, pod_path, pods_of
from flyball_actuators.platforms.kubernetes.saga import MARK, needs_preparation, unmark_pods
from flyball_actuators.platforms.kubernetes.targets import Target
from flyball_contracts.records import Preempt, Scale

COST = "controller.kubernetes.io/pod-deletion-cost"
FIRST_TO_GO = "-1000000"
BY_COST = ("Deployment", "InferenceService")
"""Kinds whose pods go in the order of their deletion cost."""
_GROUP = "leaderworkerset.sigs.k8s.io/group-index"
_REVISION = "pod-template-hash"


def pods_to_prepare(api: Api, target: Target, obj: Object, decision: Scale | Preempt) -> list[Object] | Rejected:
    """Pods that will be removed, if they are known and one of them needs preparation."""
    if decision.replicas >= decision.replicas_before:
        return []
    pods = pods_of(api, target, obj)
    if isinstance(pods, Rejected):
        return pods
    named = isinstance(decision, Preempt) and decision.victims
    if decision.replicas and named:
        going = [pod for pod in pods if pod["metadata"]["name"] in named]
    else:
        going = chosen(target, obj, pods, decision.replicas)
    checkpoint = asks_for_checkpoint(decision)
    return going if any(needs_preparation(pod, checkpoint=checkpoint) for pod in going) else []


def asks_for_checkpoint(decision: Scale | Preempt) -> bool:
    """Whether pods that promise a checkpoint write one before they go."""
    return isinstance(decision, Scale) or decision.checkpoint


def chosen(target: Target, obj: Object, pods: list[Object], stay: int) -> list[Object]:
    """Pods that leave ``stay`` replicas behind; none if that is not known beforehand."""
    if not stay:
        return pods
    if target.kind == "StatefulSet":
        ordinals: Object = obj["spec"].get("ordinals") or {}
        first = int(ordinals.get("start", 0))
        return [pod for pod in pods if _number(pod["metadata"]["name"].rpartition("-")[2]) >= first + stay]
    if target.kind == "LeaderWorkerSet":
        return [pod for pod in pods if _number(_labels(pod).get(_GROUP, "")) >= stay]
    if target.kind not in BY_COST or len({_labels(pod).get(_REVISION, "") for pod in pods}) != 1:
        return []
    siblings = Counter(node_of_pod(pod) for pod in pods)
    latest = sorted(pods, key=_since, reverse=True)
    return sorted(latest, key=lambda pod: _worth(pod, siblings))[: max(0, len(pods) - stay)]


def give_back(api: Api, target: Target, obj: Object, operation: Operation) -> None:
    """Let prepared pods that were not removed serve again: their controller removed others, or was told to."""
    uids = {uid for _, uid in operation.going}
    pods = pods_of(api, target, obj)
    stay = [] if isinstance(pods, Rejected) else [pod for pod in pods if pod["metadata"]["uid"] in uids]
    unmark_pods(api, stay, operation.decision)
    for pod in stay:
        if target.kind in BY_COST and annotation_of(pod, COST) == FIRST_TO_GO:
            body = {"metadata": {"annotations": {COST: None}, "uid": pod["metadata"]["uid"]}}
            path = pod_path(target.namespace, pod["metadata"]["name"])
            api.call("PATCH", path, body, (("fieldManager", manager(operation.decision)),), MERGE)


def return_pods_of_others(api: Api, target: Target, obj: Object, operation: Operation) -> None:
    """Let pods serve again that older decisions on the number prepared and that this decision does not remove."""
    uids = {uid for _, uid in operation.going}
    pods = pods_of(api, target, obj)
    for pod in [] if isinstance(pods, Rejected) else pods:
        older = annotation_of(pod, MARK)
        if older not in ("", operation.decision) and pod["metadata"]["uid"] not in uids:
            unmark_pods(api, [pod], older)


def _worth(pod: Object, siblings: Counter[str]) -> tuple[bool, int, bool, int, int]:
    phase = {"Pending": 0, "Unknown": 1}.get(status_of(pod).get("phase", ""), 2)
    cost = annotation_of(pod, COST)
    node = node_of_pod(pod)
    return bool(node), phase, is_true(pod, "Ready"), _number(cost), -siblings[node]


def _since(pod: Object) -> tuple[str, str]:
    """When a pod became ready and was made, as text that sorts by time."""
    conditions: list[Object] = status_of(pod).get("conditions") or []
    ready = next((str(c.get("lastTransitionTime", "")) for c in conditions if c.get("type") == "Ready"), "")
    return ready, str(pod["metadata"].get("creationTimestamp", ""))


def _labels(pod: Object) -> dict[str, str]:
    labels: dict[str, str] = pod["metadata"].get("labels") or {}
    return labels


def _number(text: str) -> int:
    return int(text) if text.removeprefix("-").isdecimal() else 0
