"""Resizes running pods in place: CPU and memory requests of the container that has the GPUs.

A decision resizes one batch of the pods that do not have the new size yet. It is done once they have it and are ready;
only then does the next decision start. The pod template is not changed: the right to patch a template includes its
image, and a Deployment rolls all of its pods when the template changes. Pods that start later are resized by
:mod:`flyball_actuators.platforms.kubernetes.replicas.new_pods`.
"""

import time
from typing import Any

from flyball_actuators.platforms.base import Done, Failed, Handle, Progress, Rejected, Running
from flyball_actuators.platforms.kubernetes.api import Answer, Api, refused
from flyball_actuators.platforms.kubernetes.kinds import Object, ReplicaStatus, field_managers_of, is_true, status_of
from flyball_actuators.platforms.kubernetes.operation import (
    OVERWRITTEN,
    Operation,
    manager,
    names_of,
    operation_of,
)
from flyball_actuators.platforms.kubernetes.pods import managed_by, pod_path, pods_of
from flyball_actuators.platforms.kubernetes.quantity import amount, quantity
from flyball_actuators.platforms.kubernetes.targets import Target, lost, read_object, unless_forbidden
from flyball_contracts.nodes.kubernetes import MANAGER
from flyball_contracts.records import Resources, Scale, SubjectState

STRATEGIC = "application/strategic-merge-patch+json"
_PENDING = "PodResizePending"
GIVE_UP_S = 900.0
"""A kubelet resizes within seconds if its node has room; a container that restarts needs its cold start."""


def resources_of(pod: Object) -> Resources:
    """Requests of the container with the GPUs."""
    values: dict[str, str] = _container(pod).get("resources", {}).get("requests") or {}
    memory = amount(values.get("memory"))
    return Resources(cpu=amount(values.get("cpu")), memory_bytes=None if memory is None else round(memory))


def resize(
    api: Api, target: Target, obj: Object, decision: Scale, wanted: Resources, *, dry_run: bool
) -> Handle | Rejected:
    """Validate the resize of all pods by the server's dry run, then apply it; nothing changes if one is refused."""
    if wanted.gpu_profile:
        return Rejected("unsupported", f"the GPUs of {target} cannot be changed in place; request only CPU or memory")
    found = pods_of(api, target, obj)
    if isinstance(found, Rejected):
        return found
    have = [pod for pod in found if has(pod, wanted)]
    broken = next((pod["metadata"]["name"] for pod in have if not is_true(pod, "Ready") and mark_of(pod)), "")
    if broken:
        return Rejected("conflict", f"pod {broken} of the batch before does not serve yet; decide again when it does")
    pods = [pod for pod in found if pod not in have][: decision.batch_size]
    operation = _operation(target, obj, decision, wanted, pods)
    for dry in (True,) if dry_run else (True, False):
        for pod in pods:
            answer = patched(api, pod, wanted, manager(decision.id), dry=dry)
            if not answer.ok and dry:
                return refused(answer, f"resizing pod {target.namespace}/{pod['metadata']['name']}")
    shown = target.controller.status(obj)
    be = "would be" if dry_run else "were"
    return Handle(
        operation="" if dry_run else operation.encode(),
        expected=_state(shown, wanted, applies_to_all=len(have) + len(pods) == len(found)),
        answer=f"{len(pods)} pods of {target} {be} resized in place, {len(have)} of {len(found)} had it before",
    )


def poll_resize(api: Api, operation: Operation, now_ns: int) -> Progress:
    """Resize remaining pods and wait for the kubelets; fails if a node has no room."""
    target = operation.target
    answer = read_object(api, target)
    if (problem := lost(answer, target, operation.uid)) is not None:
        return problem
    found = unless_forbidden(pods_of(api, target, answer.body))
    if isinstance(found, Rejected):
        return Failed(f"unknown outcome: {found.detail}")
    shown, wanted = target.controller.status(answer.body), _wanted(operation)
    uids = {uid for _, uid in operation.going}
    pods = [pod for pod in found if pod["metadata"]["uid"] in uids or not operation.batch]
    left = [pod for pod in pods if not has(pod, wanted)]
    others = [pod for pod in found if pod not in pods and not has(pod, wanted)]
    state = _state(shown, wanted, applies_to_all=not left and not others)
    for pod in left:
        patch = patched(api, pod, wanted, manager(operation.decision), dry=False)
        if not patch.ok and patch.status not in (404, 409):
            return Failed(f"{len(pods) - len(left)} of {len(pods)} pods are resized: {patch.message}", state)
    waiting = [waits for pod in pods if (waits := _waits(pod))]
    if any(reason == "Infeasible" for reason, _ in waiting):
        return Failed(f"{len(waiting)} of {len(pods)} pods do not fit on their nodes: {waiting[0][1]}", state)
    broken = [pod for pod in pods if not is_true(pod, "Ready")]
    if left or waiting or broken:
        text = f"{len(pods) - len(left) - len(waiting)} of {len(pods)} pods are resized"
        text += f", and {len(broken)} of all do not serve" if broken else ""
        if operation.until_ns and now_ns >= operation.until_ns:
            return Failed(f"{text} after {GIVE_UP_S:.0f} s; look at the others, then decide again", state)
        return Running(text)
    rest = f", {len(others)} are left for the next decision" if others else ""
    return Done(state, now_ns, f"{len(pods)} pods of {target} are resized{rest}")


def find_resize(api: Api, target: Target, obj: Object, decision: Scale, wanted: Resources) -> Handle | None:
    """The operation of a decision that has changed any pod."""
    found = pods_of(api, target, obj)
    if isinstance(found, Rejected):
        return Handle(operation=OVERWRITTEN, expected=SubjectState(), answer=found.detail)
    ours = [pod for pod in found if managed_by(pod, manager(decision.id))]
    if not ours:
        return None
    expected = _state(target.controller.status(obj), wanted, applies_to_all=all(has(pod, wanted) for pod in found))
    operation = _operation(target, obj, decision, wanted, ours)  # these may be fewer pods than the decision was granted
    return Handle(operation=operation.encode(), expected=expected, answer="found on the pods")


def _operation(target: Target, obj: Object, decision: Scale, wanted: Resources, pods: list[Object]) -> Operation:
    cpu, memory_bytes = wanted.cpu or 0.0, wanted.memory_bytes or 0
    pods_named = names_of(pods)
    return operation_of(
        "resize", decision, target, obj, cpu=cpu, memory_bytes=memory_bytes, pods=pods_named, batch=True,
        until_ns=time.time_ns() + round(GIVE_UP_S * 1e9),
    )  # fmt: skip


def _state(shown: ReplicaStatus, wanted: Resources, *, applies_to_all: bool) -> SubjectState:
    """State of the workload; ``resources`` only if all replicas have the same."""
    return SubjectState(replicas=shown.replicas, ready=shown.ready, resources=wanted if applies_to_all else None)


def patched(api: Api, pod: Object, wanted: Resources, who: str, *, dry: bool) -> Answer:
    """Patch the requests of a pod, and those of its limits that have to follow."""
    container = _container(pod)
    values = {"cpu": wanted.cpu, "memory": wanted.memory_bytes}
    requests = {name: quantity(float(value)) for name, value in values.items() if value}
    resources: dict[str, Any] = {"requests": requests}
    if limits := _limits(container, requests):
        resources["limits"] = limits
    body = {"spec": {"containers": [{"name": container["name"], "resources": resources}]}}
    query = (("fieldManager", who), *((("dryRun", "All"),) if dry else ()))
    path = f"{pod_path(pod['metadata']['namespace'], pod['metadata']['name'])}/resize"
    return api.call("PATCH", path, body, query, STRATEGIC)


def _limits(container: Object, requests: dict[str, str]) -> dict[str, str]:
    """Limits to set with new requests, so that the pod keeps its quality of service, which a resize may not change.

    A limit that equals its request follows it. A higher one stays, as the pod may be using memory up to it, or grows in
    proportion, as the Vertical Pod Autoscaler's limits do, where the new request reaches it.
    """
    old = container.get("resources", {})
    limits: dict[str, str] = old.get("limits") or {}
    before: dict[str, str] = old.get("requests") or {}
    found: dict[str, str] = {}
    for name in requests.keys() & limits.keys():
        limit, request = amount(limits[name]) or 0.0, amount(requests[name]) or 0.0
        ratio = limit / (amount(before.get(name)) or limit or 1.0)
        if ratio == 1.0 or limit <= request:
            found[name] = quantity(ratio * request)
    return found


def _container(pod: Object) -> Object:
    containers: list[Object] = pod["spec"]["containers"]
    for container in containers:
        limits: dict[str, str] = container.get("resources", {}).get("limits") or {}
        if any(name.startswith("nvidia.com/") for name in limits):
            return container
    return containers[0]


def _wanted(operation: Operation) -> Resources:
    return Resources(cpu=operation.cpu or None, memory_bytes=operation.memory_bytes or None)


def has(pod: Object, wanted: Resources) -> bool:
    """Whether a pod has the requested resources."""
    now = resources_of(pod)
    same_cpu = wanted.cpu is None or (now.cpu is not None and quantity(now.cpu) == quantity(wanted.cpu))
    return same_cpu and wanted.memory_bytes in (None, now.memory_bytes)


def mark_of(pod: Object) -> Object | None:
    """Flyball's latest entry among the managers that resized a pod; ``None`` if Flyball did not set its size."""
    ours = [
        entry
        for entry in field_managers_of(pod)
        if entry.get("subresource") == "resize" and str(entry.get("manager", "")).startswith(MANAGER)
    ]
    return max(ours, key=lambda entry: str(entry.get("time", "")), default=None)


def _waits(pod: Object) -> tuple[str, str] | None:
    conditions: list[Object] = status_of(pod).get("conditions") or []
    for condition in conditions:
        if condition.get("type") == _PENDING and condition.get("status") == "True":
            return str(condition.get("reason", "")), str(condition.get("message", ""))
    return None
