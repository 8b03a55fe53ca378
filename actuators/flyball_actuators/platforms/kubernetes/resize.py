"""Other requests for the pods that run: CPU and memory of the container that has the GPUs, in place.

The template is not touched, because who may patch one may change its image: pods that are made later start with what
the template asks for, until the next decision.
"""

from typing import Any

from flyball_actuators.platforms.base import Done, Failed, Handle, Progress, Rejected, Running
from flyball_actuators.platforms.calls import stopped
from flyball_actuators.platforms.kubernetes.api import Answer, Api, refused
from flyball_actuators.platforms.kubernetes.count import written_by
from flyball_actuators.platforms.kubernetes.kinds import Object, status_of
from flyball_actuators.platforms.kubernetes.operation import Operation, manager, operation_of
from flyball_actuators.platforms.kubernetes.pods import pod_path, pods_of
from flyball_actuators.platforms.kubernetes.quantity import amount, quantity
from flyball_actuators.platforms.kubernetes.targets import Target
from flyball_contracts.records import Resources, Scale, SubjectState

STRATEGIC = "application/strategic-merge-patch+json"
_PENDING = "PodResizePending"


def resources_of(pod: Object) -> Resources:
    """What the container with the GPUs asks for."""
    asked: dict[str, str] = _container(pod).get("resources", {}).get("requests") or {}
    memory = amount(asked.get("memory"))
    return Resources(cpu=amount(asked.get("cpu")), memory_bytes=None if memory is None else round(memory))


def resize(
    api: Api, target: Target, thing: Object, decision: Scale, wanted: Resources, *, dry_run: bool
) -> Handle | Rejected:
    """Try all pods with the server's dry run, then change them; nothing is changed where one would be refused."""
    if wanted.gpu_profile:
        return Rejected("unsupported", f"the GPUs of {target} cannot be changed in place; ask for CPU or memory alone")
    operation = _operation(target, thing, decision, wanted)
    pods = pods_of(api, target, thing)
    if isinstance(pods, Rejected):
        return pods
    for dry in (True,) if dry_run else (True, False):
        for pod in pods:
            answer = _patched(api, operation, pod, dry=dry)
            if not answer.ok and dry:
                return refused(answer, f"resizing pod {target.namespace}/{pod['metadata']['name']}")
    shown = target.of.show(thing)
    told = "would be" if dry_run else "were"
    return Handle(
        operation="" if dry_run else operation.encode(),
        expected=SubjectState(replicas=shown.replicas, ready=shown.ready, resources=wanted),
        answer=f"{len(pods)} pods of {target} {told} resized in place; later ones start as the template says",
    )


def watch_resize(api: Api, operation: Operation, now_ns: int) -> Progress:
    """Change what is left, and wait for the kubelets; what a node has no room for has failed."""
    target = operation.target
    answer = api.get(target.path)
    if not answer.ok or answer.body["metadata"]["uid"] != operation.uid:
        return Failed(f"{target} is gone; whoever deleted it has decided otherwise")
    pods = pods_of(api, target, answer.body)
    if isinstance(pods, Rejected):
        return Failed(f"unknown outcome: {pods.detail}")
    shown, wanted = target.of.show(answer.body), _wanted(operation)
    state = SubjectState(replicas=shown.replicas, ready=shown.ready, resources=wanted)
    left = [pod for pod in pods if not _has(pod, wanted)]
    why = stopped() if left else ""
    if why:
        return Running(f"{len(pods) - len(left)} of {len(pods)} pods are resized; nothing is carried on: {why}")
    for pod in left:
        said = _patched(api, operation, pod, dry=False)
        if not said.ok and said.status not in (404, 409):
            return Failed(f"{len(pods) - len(left)} of {len(pods)} pods are resized: {said.message}", state)
    waiting = [words for pod in pods if (words := _waits(pod))]
    if any(reason == "Infeasible" for reason, _ in waiting):
        return Failed(f"{len(waiting)} of {len(pods)} pods do not fit on their nodes: {waiting[0][1]}", state)
    if left or waiting:
        return Running(f"{len(pods) - len(left) - len(waiting)} of {len(pods)} pods are resized")
    return Done(state, now_ns, f"{len(pods)} pods of {target} are resized")


def find_resize(api: Api, target: Target, thing: Object, decision: Scale, wanted: Resources) -> Handle | None:
    """The operation of a decision for which any pod has been changed."""
    operation = _operation(target, thing, decision, wanted)
    pods = pods_of(api, target, thing)
    if not isinstance(pods, Rejected) and not any(written_by(pod, manager(decision.id)) for pod in pods):
        return None
    shown = target.of.show(thing)
    expected = SubjectState(replicas=shown.replicas, ready=shown.ready, resources=wanted)
    return Handle(operation=operation.encode(), expected=expected, answer="found on the pods")


def _operation(target: Target, thing: Object, decision: Scale, wanted: Resources) -> Operation:
    cpu, memory_bytes = wanted.cpu or 0.0, wanted.memory_bytes or 0
    return operation_of("resize", decision, target, thing, cpu=cpu, memory_bytes=memory_bytes)


def _patched(api: Api, operation: Operation, pod: Object, *, dry: bool) -> Answer:
    container = _container(pod)
    limits: dict[str, str] = container.get("resources", {}).get("limits") or {}
    asked = {"cpu": operation.cpu, "memory": float(operation.memory_bytes)}
    requests = {name: quantity(value) for name, value in asked.items() if value}
    resources: dict[str, Any] = {"requests": requests}
    raised = {name: value for name, value in requests.items() if name in limits}
    if raised:  # a limit stays the request's own, or the quality of service would change
        resources["limits"] = raised
    body = {"spec": {"containers": [{"name": container["name"], "resources": resources}]}}
    query = (("fieldManager", manager(operation.decision)), *((("dryRun", "All"),) if dry else ()))
    path = f"{pod_path(operation.namespace, pod['metadata']['name'])}/resize"
    return api.call("PATCH", path, body, query, STRATEGIC)


def _container(pod: Object) -> Object:
    containers: list[Object] = pod["spec"]["containers"]
    for container in containers:
        limits: dict[str, str] = container.get("resources", {}).get("limits") or {}
        if any(name.startswith("nvidia.com/") for name in limits):
            return container
    return containers[0]


def _wanted(operation: Operation) -> Resources:
    return Resources(cpu=operation.cpu or None, memory_bytes=operation.memory_bytes or None)


def _has(pod: Object, wanted: Resources) -> bool:
    now = resources_of(pod)
    same_cpu = wanted.cpu is None or (now.cpu is not None and quantity(now.cpu) == quantity(wanted.cpu))
    return same_cpu and wanted.memory_bytes in (None, now.memory_bytes)


def _waits(pod: Object) -> tuple[str, str] | None:
    conditions: list[Object] = status_of(pod).get("conditions") or []
    for condition in conditions:
        if condition.get("type") == _PENDING and condition.get("status") == "True":
            return str(condition.get("reason", "")), str(condition.get("message", ""))
    return None
