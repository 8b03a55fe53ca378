"""Pods of a controller, verified by owner references, and their nodes."""

from collections.abc import Iterable

from flyball_actuators.platforms.base import Rejected
from flyball_actuators.platforms.kubernetes.api import Api, refused
from flyball_actuators.platforms.kubernetes.kinds import KINDS, Object, field_managers_of, owner_of, status_of
from flyball_actuators.platforms.kubernetes.targets import Target

_BETWEEN = {
    "Pod": ("/api/v1", "pods"),  # the leader of a LeaderWorkerSet's group owns its workers
    "ReplicaSet": ("/apis/apps/v1", "replicasets"),
    **{kind.name: (f"/apis/{kind.group}", kind.resource) for kind in KINDS},
}
_DEEPEST = 4
_ENDED = ("Succeeded", "Failed")


def pod_path(namespace: str, name: str) -> str:
    """Path of a pod."""
    return f"/api/v1/namespaces/{namespace}/pods/{name}"


def managed_by(obj: Object, name: str, subresource: str | None = None) -> bool:
    """Whether this field manager, by this subresource, owns a field of the object."""
    return any(
        entry.get("manager") == name and subresource in (None, entry.get("subresource"))
        for entry in field_managers_of(obj)
    )


def own_pod(api: Api, target: Target, uid: str, name: str) -> Object | Rejected | None:
    """Read a pod by name; ``None`` if there is none, ``Rejected`` if it does not belong to the controller.

    Ownership follows owner references up to the controller with this ``uid``; names and labels prove nothing.
    """
    answer = api.get(pod_path(target.namespace, name))
    if answer.status == 404:
        return None
    if not answer.ok:
        return refused(answer, f"reading pod {target.namespace}/{name}")
    if _is_own(api, target, uid, answer.body, {}):
        return dict(answer.body)
    return Rejected(
        "invalid", f"pod {target.namespace}/{name} is not one of {target}; name a replica of the workload itself"
    )


def _is_own(api: Api, target: Target, uid: str, pod: Object, owners: dict[str, Object]) -> bool:
    """Whether a pod's owner references lead to the controller with this ``uid``; ``owners`` caches the objects read."""
    owner = pod
    for _ in range(_DEEPEST):
        reference = owner_of(owner)
        if reference.get("uid") == uid:
            return True
        place = _BETWEEN.get(reference.get("kind", ""))
        if place is None:
            return False
        above = owners.get(reference["uid"])
        if above is None:
            found = api.get(f"{place[0]}/namespaces/{target.namespace}/{place[1]}/{reference['name']}")
            if not found.ok or found.body["metadata"]["uid"] != reference["uid"]:
                return False
            above = owners[reference["uid"]] = found.body
        owner = above
    return False


def pods_of(api: Api, target: Target, obj: Object, *, leaving: bool = False) -> list[Object] | Rejected:
    """Pods of the controller that have not ended: those that stay or, with ``leaving``, those being deleted.

    A pod that has ended (completed, or was evicted by its kubelet) holds nothing, and may stay in the API for days.
    """
    label = target.controller.label
    selector = f"{label}={target.name}" if label else selector_of(obj["spec"]["selector"])
    answer = api.listed(f"/api/v1/namespaces/{target.namespace}/pods", (("labelSelector", selector),))
    if not answer.ok:
        return refused(answer, f"listing the pods of {target}")
    found = [
        pod
        for pod in answer.body
        if ("deletionTimestamp" in pod["metadata"]) == leaving and status_of(pod).get("phase") not in _ENDED
    ]
    owners: dict[str, Object] = {}  # labels prove nothing
    return [pod for pod in found if _is_own(api, target, obj["metadata"]["uid"], pod, owners)]


def selector_of(chosen: Object) -> str:
    """A label selector as text, for a list."""
    labels: dict[str, str] = chosen.get("matchLabels") or {}
    rules: list[Object] = chosen.get("matchExpressions") or []
    parts = [f"{key}={value}" for key, value in labels.items()]
    for rule in rules:
        key, how, values = rule["key"], rule["operator"], ",".join(rule.get("values") or ())
        parts.append({"Exists": key, "DoesNotExist": f"!{key}"}.get(how, f"{key} {how.lower()} ({values})"))
    return ",".join(parts)


def node_of_pod(pod: Object) -> str:
    """Node of a pod that runs or will run there; empty if it has none."""
    return str(pod["spec"].get("nodeName", ""))


def nodes_of_pods(api: Api, namespace: str, names: Iterable[str]) -> dict[str, str]:
    """Nodes of pods by name, empty for one that is gone; a pod that cannot be read is left out."""
    found = {name: api.get(pod_path(namespace, name)) for name in names}
    return {
        name: node_of_pod(answer.body) if answer.ok else ""
        for name, answer in found.items()
        if answer.ok or answer.status == 404
    }
