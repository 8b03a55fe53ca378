"""Writes the number of replicas, under the version that was read, and reports what cannot be written."""

from typing import Any

from flyball_actuators.platforms.base import Rejected
from flyball_actuators.platforms.kubernetes.api import JSON, MERGE, Answer, Api, refused
from flyball_actuators.platforms.kubernetes.kinds import Object, field_managers_of
from flyball_actuators.platforms.kubernetes.pods import managed_by, pod_path
from flyball_actuators.platforms.kubernetes.replicas.going import BY_COST, COST, FIRST_TO_GO
from flyball_actuators.platforms.kubernetes.replicas.kserve import unbounded
from flyball_actuators.platforms.kubernetes.replicas.volcano import last_retry, send_command
from flyball_actuators.platforms.kubernetes.targets import Target, read_object

QUEUE = "kueue.x-k8s.io/queue-name"
_TRIES = 8
_AUTOSCALER = "kube-controller-manager"  # of all its controllers, only the autoscaler writes the scale subresource


def set_replicas(
    api: Api,
    target: Target,
    obj: Object,
    wanted: int,
    victims: tuple[str, ...],
    query: tuple[tuple[str, str], ...],
) -> Answer | Rejected:
    """Mark the victims and write the number; if one is refused, the marks are removed."""
    marked: list[str] = []
    answer: Answer | Rejected | None = None
    for victim in victims if target.kind in BY_COST else ():  # of any other kind, all pods go
        body = {"metadata": {"annotations": {COST: FIRST_TO_GO}}}
        cost = api.call("PATCH", pod_path(target.namespace, victim), body, query, MERGE)
        if not cost.ok:
            answer = refused(cost, f"marking pod {target.namespace}/{victim} as the first to go")
            break
        marked.append(victim)
    if answer is None:
        answer = _written(api, target, obj, wanted, query)
    if isinstance(answer, Rejected):
        no_cost = {"metadata": {"annotations": {COST: None}}}
        for victim in marked:
            api.call("PATCH", pod_path(target.namespace, victim), no_cost, query, MERGE)
    return answer


def unsupported(target: Target, obj: Object, wanted: int, victims: tuple[str, ...]) -> Rejected | None:
    """Rejection for a number of replicas, or victims, that the object cannot be given."""
    shown = target.controller.status(obj)
    if shown.finished:
        return Rejected("conflict", f"{target} has ended; start it again, or remove the workload")
    if QUEUE in (obj["metadata"].get("labels") or {}):
        return Rejected(
            "conflict",
            f"Kueue starts and stops {target}, and would take back what is written; name its workload in `workloads` "
            "of an entry with driver kueue",
        )
    whole = target.controller.status({**obj, "spec": {**obj["spec"], "suspend": False}}).replicas
    if target.controller.scale_method in ("suspend", "command") and wanted not in (0, whole):
        return Rejected(
            "unsupported", f"{target} can be suspended and resumed, not resized; request all replicas or none"
        )
    if target.controller.scale_method == "command":
        problem = last_retry(target, obj)
        if problem is not None:
            return problem
    if target.controller.scale_method == "bounds" and (problem := unbounded(target, obj, wanted)) is not None:
        return problem
    if managed_by(obj, _AUTOSCALER, "scale"):
        return Rejected(
            "conflict",
            f"a HorizontalPodAutoscaler scales {target}, and would take back what is written; delete it, or leave the "
            "workload out of actuator.allow",
        )
    if victims and wanted and target.kind not in BY_COST:
        return Rejected(
            "unsupported", f"{target} chooses by itself which pods go; name no victims, or stop all of its replicas"
        )
    return None


def _written(
    api: Api, target: Target, obj: Object, wanted: int, query: tuple[tuple[str, str], ...]
) -> Answer | Rejected:
    """Write with the resource version that was read; read again if only the status has changed."""
    first = _fixed(target, obj)
    for _ in range(_TRIES):
        metadata = obj["metadata"]
        named = {"name": target.name, "namespace": target.namespace, "resourceVersion": metadata["resourceVersion"]}
        if target.controller.scale_method == "scale":
            body: Any = {
                "apiVersion": "autoscaling/v1",
                "kind": "Scale",
                "metadata": {**named, "uid": metadata["uid"]},
                "spec": {"replicas": wanted},
            }
            answer = api.call("PUT", f"{target.path}/scale", body, query, JSON)
        elif target.controller.scale_method == "command":
            return send_command(api, target, obj, wanted, query)
        elif target.controller.scale_method == "bounds":
            bounds = {"predictor": {"minReplicas": wanted, "maxReplicas": wanted}}
            body = {"apiVersion": target.controller.group, "kind": target.kind, "metadata": named, "spec": bounds}
            answer = api.call("PATCH", target.path, body, query, MERGE)
        else:
            spec: dict[str, Any] = {"suspend": wanted == 0}
            if wanted and target.controller.scale_method == "parallelism":
                spec["parallelism"] = wanted
            body = {"apiVersion": target.controller.group, "kind": target.kind, "metadata": named, "spec": spec}
            answer = api.call("PATCH", target.path, body, query, MERGE)
        if answer.ok:
            return answer
        if answer.status != 409:
            return refused(answer, f"setting {target} to {wanted} replicas")
        fresh = read_object(api, target)
        if not fresh.ok:
            return refused(fresh, f"reading {target}")
        obj = fresh.body
        if _fixed(target, obj) != first:
            return Rejected(
                "conflict", f"{target} was changed by {writer_of(obj)} meanwhile; decide again on what it is now"
            )
    return Rejected("conflict", f"{target} changed {_TRIES} times while it was written; decide again when it is calm")


def _fixed(target: Target, obj: Object) -> tuple[Any, ...]:
    shown = target.controller.status(obj)
    return obj["metadata"]["uid"], obj["metadata"].get("generation"), shown.replicas, shown.suspended


def writer_of(obj: Object) -> str:
    """Field manager of the last change, status excepted."""
    writers = sorted(field_managers_of(obj), key=lambda entry: str(entry.get("time", "")))
    return repr(writers[-1].get("manager", "")) if writers else "another client"
