"""Prepares pods before they are evicted: they confirm a checkpoint, and traffic is drained.

The steps form a saga: each is safe to repeat and is recorded on the pods, so that any actuator can continue it, and
until the first pod is evicted all of it can be undone.

A pod takes part through its template:

- annotation ``flyball.dev/checkpoint: on-request``: it writes a checkpoint when ``flyball.dev/checkpoint-requested``
  appears (a downward API volume shows it to the container), and confirms by setting ``flyball.dev/checkpoint-done`` to
  the same value. It has ``flyball.dev/checkpoint-timeout-s`` seconds (300); after that it gets SIGTERM and its grace
  period like any other pod.
- label ``flyball.dev/serving: "true"``, in the selector of its Service but not in that of its controller: the value
  becomes ``draining``, and the pod is evicted once no EndpointSlice shows it as ready, or after 30 s.
- label ``flyball.dev/gang: NAME``: pods of one controller with the same name are evicted together or not at all. Groups
  of a LeaderWorkerSet do not need it.
"""

from flyball_actuators.platforms.base import Rejected
from flyball_actuators.platforms.kubernetes.api import MERGE, Api, refused
from flyball_actuators.platforms.kubernetes.kinds import Object, annotation_of, status_of
from flyball_actuators.platforms.kubernetes.operation import manager
from flyball_actuators.platforms.kubernetes.pods import pod_path, pods_of, selector_of
from flyball_actuators.platforms.kubernetes.targets import Target

MARK = "flyball.dev/moved-for"
CHECKPOINT, ON_REQUEST = "flyball.dev/checkpoint", "on-request"
REQUESTED, CONFIRMED = "flyball.dev/checkpoint-requested", "flyball.dev/checkpoint-done"
TIMEOUT = "flyball.dev/checkpoint-timeout-s"
SERVING, DRAINING = "flyball.dev/serving", "draining"
GANGS = ("flyball.dev/gang", "leaderworkerset.sigs.k8s.io/group-index")
CHECKPOINT_S, DRAIN_S, LONGEST_S = 300.0, 30.0, 3_600.0
_NS = 1_000_000_000


def gang_of(api: Api, target: Target, obj: Object, pod: Object) -> list[Object] | Rejected:
    """Pods of the same gang as ``pod``, including it."""
    gang = _gang(pod)
    if not gang:
        return [pod]
    pods = pods_of(api, target, obj)
    return pods if isinstance(pods, Rejected) else [one for one in pods if _gang(one) == gang]


def needs_preparation(pod: Object, *, checkpoint: bool) -> bool:
    """Whether a pod has steps to do before it is evicted."""
    return (checkpoint and _promises(pod)) or _label(pod, SERVING) in ("true", DRAINING)


def preparation_timeout_s(pods: list[Object], *, checkpoint: bool) -> float:
    """Time that pods may take to be ready for eviction, in seconds."""
    waits = [_checkpoint_timeout_s(pod) for pod in pods if checkpoint and _promises(pod)]
    return max(waits, default=0.0) + DRAIN_S


def mark_pods(api: Api, pods: list[Object], decision: str, query: tuple[tuple[str, str], ...]) -> Rejected | None:
    """Annotate the pods with the decision, all or none."""
    for i, pod in enumerate(pods):
        body = {"metadata": {"annotations": {MARK: decision}, "uid": pod["metadata"]["uid"]}}
        answer = api.call("PATCH", _path(pod), body, query, MERGE)
        if not answer.ok:
            unmark_pods(api, pods[:i], decision, query)
            name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
            return refused(answer, f"marking pod {name}")
    return None


def prepare(
    api: Api, pods: list[Object], decision: str, begun_ns: int, now_ns: int, *, checkpoint: bool
) -> tuple[str, str]:
    """Do the next steps for all pods at once; return what is awaited, and the result of the checkpoints.

    The first is empty once all pods may be evicted.
    """
    with_checkpoint = [pod for pod in pods if checkpoint and _promises(pod)]
    for pod in with_checkpoint:
        if annotation_of(pod, REQUESTED) != decision:
            _patch(api, pod, decision, {"annotations": {REQUESTED: decision}})
    late = [pod for pod in with_checkpoint if annotation_of(pod, CONFIRMED) != decision]
    waits = [pod for pod in late if now_ns < begun_ns + round(_checkpoint_timeout_s(pod) * _NS)]
    if waits:
        confirmed = len(with_checkpoint) - len(late)
        return f"{confirmed} of {len(with_checkpoint)} checkpoints are confirmed: {_names(waits)} is awaited", ""
    checkpoints = (
        f"{len(with_checkpoint) - len(late)} of {len(with_checkpoint)} checkpoints were confirmed"
        if with_checkpoint
        else ""
    )
    serving = [pod for pod in pods if _label(pod, SERVING) == "true"]
    for pod in serving:
        _patch(api, pod, decision, {"labels": {SERVING: DRAINING}})
    drained = [pod for pod in pods if _label(pod, SERVING) in ("true", DRAINING)]
    waited = preparation_timeout_s(pods, checkpoint=checkpoint)
    if drained and now_ns < begun_ns + round(waited * _NS):
        still = _with_load(api, drained)
        if still:
            return f"load is taken off {_names(still)}", checkpoints
    return "", checkpoints


def unmark_pods(api: Api, pods: list[Object], decision: str, query: tuple[tuple[str, str], ...] = ()) -> None:
    """Remove the annotations of pods that stay, and let them serve again."""
    for pod in pods:
        if annotation_of(pod, MARK) not in ("", decision):
            continue
        metadata: Object = {"annotations": {MARK: None, REQUESTED: None, CONFIRMED: None}}
        if _label(pod, SERVING) == DRAINING:
            metadata["labels"] = {SERVING: "true"}
        metadata["uid"] = pod["metadata"]["uid"]
        api.call("PATCH", _path(pod), {"metadata": metadata}, query or _field_manager(decision), MERGE)


def exceeded_budget(api: Api, namespace: str, pods: list[Object]) -> str:
    """Disruption budget that does not allow the eviction of all pods at once; empty if there is none."""
    budgets = api.listed(f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets")
    if not budgets.ok:
        return refused(budgets, f"listing the disruption budgets of namespace {namespace}").detail
    uids = {pod["metadata"]["uid"] for pod in pods}
    for budget in budgets.body:
        query = (("labelSelector", selector_of(budget["spec"].get("selector") or {})),)
        covered = api.listed(f"/api/v1/namespaces/{namespace}/pods", query)
        if not covered.ok:
            return refused(covered, f"listing the pods of namespace {namespace}").detail
        count = sum(pod["metadata"]["uid"] in uids for pod in covered.body)
        allowed = status_of(budget).get("disruptionsAllowed") or 0
        if count > allowed:
            name = budget["metadata"]["name"]
            return f"{count} pods go together, and disruption budget {name} allows {allowed} now"
    return ""


def _with_load(api: Api, pods: list[Object]) -> list[Object]:
    """Pods that an EndpointSlice shows as ready, or all of them if the slices cannot be read."""
    namespace = pods[0]["metadata"]["namespace"]
    slices = api.listed(f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices")
    if not slices.ok:
        return pods  # without the right to read them, the pods wait for the whole drain time
    ready = {
        endpoint.get("targetRef", {}).get("uid")
        for one in slices.body
        for endpoint in one.get("endpoints") or ()
        if endpoint.get("conditions", {}).get("ready") is not False
    }
    return [pod for pod in pods if pod["metadata"]["uid"] in ready]


def _patch(api: Api, pod: Object, decision: str, metadata: Object) -> None:
    body = {"metadata": {**metadata, "uid": pod["metadata"]["uid"]}}
    if api.call("PATCH", _path(pod), body, _field_manager(decision), MERGE).ok:
        for part, changes in metadata.items():
            pod["metadata"][part] = {**(pod["metadata"].get(part) or {}), **changes}


def _field_manager(decision: str) -> tuple[tuple[str, str], ...]:
    return (("fieldManager", manager(decision)),)


def _path(pod: Object) -> str:
    return pod_path(pod["metadata"]["namespace"], pod["metadata"]["name"])


def _names(pods: list[Object]) -> str:
    names = [str(pod["metadata"]["name"]) for pod in pods]
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def _label(pod: Object, key: str) -> str:
    labels: dict[str, str] = pod["metadata"].get("labels") or {}
    return labels.get(key, "")


def _gang(pod: Object) -> str:
    return next((f"{key}={value}" for key in GANGS if (value := _label(pod, key))), "")


def _promises(pod: Object) -> bool:
    return annotation_of(pod, CHECKPOINT) == ON_REQUEST


def _checkpoint_timeout_s(pod: Object) -> float:
    text = annotation_of(pod, TIMEOUT)
    return min(float(text), LONGEST_S) if text.isdecimal() else CHECKPOINT_S
