"""Scales controllers: the scale subresource, a Job's parallelism, suspend, or Volcano's commands."""

from typing import Any

import msgspec

from flyball_actuators.platforms.base import Done, Failed, Handle, Progress, Rejected, Running, Superseded
from flyball_actuators.platforms.kubernetes.api import JSON, MERGE, Answer, Api, refused
from flyball_actuators.platforms.kubernetes.kinds import (
    Object,
    ReplicaStatus,
    annotation_of,
    field_managers_of,
    status_of,
)
from flyball_actuators.platforms.kubernetes.new_pods import resize_new_pods
from flyball_actuators.platforms.kubernetes.operation import Operation, manager, names_of, operation_of
from flyball_actuators.platforms.kubernetes.pods import managed_by, pod_path, pods_of
from flyball_actuators.platforms.kubernetes.saga import (
    MARK,
    mark_pods,
    needs_preparation,
    preparation_timeout_s,
    prepare,
    unmark_pods,
)
from flyball_actuators.platforms.kubernetes.targets import Target, version_of
from flyball_actuators.platforms.kubernetes.volcano import last_retry, send_command
from flyball_contracts.records import Preempt, Scale, SubjectState

COST = "controller.kubernetes.io/pod-deletion-cost"
QUEUE = "kueue.x-k8s.io/queue-name"
_FIRST_TO_GO = "-1000000"
_TRIES = 8
GIVE_UP_S = 900.0
_NS = 1_000_000_000
_AUTOSCALER = "kube-controller-manager"  # of all that it does, only the autoscaler writes the scale subresource


def count(
    api: Api, target: Target, obj: Object, decision: Scale | Preempt, now_ns: int, *, dry_run: bool
) -> Handle | Rejected:
    """Set the number of replicas, if the object's specification is unchanged since it was read.

    If pods of a preemption must be prepared first, that is started, and :func:`poll_count` sets the number later.
    """
    shown, wanted = target.controller.status(obj), decision.replicas
    victims = _victims(decision)
    problem = _unsupported(target, obj, wanted, victims)
    if problem is not None:
        return problem
    query = (("fieldManager", manager(decision.id)), *((("dryRun", "All"),) if dry_run else ()))
    first = [] if dry_run else _pods_to_prepare(api, target, obj, decision)
    if isinstance(first, Rejected):
        return first
    if first:
        return _start_preparing(api, target, obj, decision, first, now_ns)
    answer = _set(api, target, obj, wanted, victims, query)
    if isinstance(answer, Rejected):
        return answer
    operation = count_of(decision, target, obj, now_ns)
    return Handle(
        operation="" if dry_run else operation.encode(),
        expected=decision.expected_state(SubjectState()),
        answer=_describe(target, shown, wanted, answer, dry_run),
    )


def count_of(decision: Scale | Preempt, target: Target, obj: Object, now_ns: int) -> Operation:
    """The operation that sets a controller to the decision's number of replicas."""
    until_ns = now_ns + round(GIVE_UP_S * _NS) if target.controller.scale_method == "command" else 0
    frees = decision.replicas < decision.replicas_before
    return operation_of("count", decision, target, obj, replicas=decision.replicas, frees=frees, until_ns=until_ns)


def is_applied(obj: Object, target: Target, decision: str, replicas: int) -> bool:
    """Whether the object shows that a decision was applied: its field manager or, for Volcano, the number."""
    if target.controller.scale_method == "command":
        return target.controller.status(obj).replicas == replicas
    return managed_by(obj, manager(decision))


def poll_count(api: Api, operation: Operation, now_ns: int) -> Progress:
    """Progress of the controller: done once the requested replicas are ready and removed pods are gone."""
    target = operation.target
    answer = api.get(target.path)
    if answer.status == 404 or (answer.ok and answer.body["metadata"]["uid"] != operation.uid):
        return Failed(f"{target} is gone; somebody deleted it")
    if not answer.ok:
        return Failed(f"unknown outcome: {refused(answer, f'reading {target}').detail}")
    shown = target.controller.status(answer.body)
    state = SubjectState(replicas=shown.replicas, ready=shown.ready, suspended=shown.suspended)
    if operation.pods and not is_applied(answer.body, target, operation.decision, operation.replicas):
        return _continue_preparing(api, operation, answer.body, state, now_ns)
    if shown.finished:
        return Superseded(f"{target} has ended by itself", state)
    if shown.replicas != operation.replicas and target.controller.scale_method == "command":
        if now_ns < operation.until_ns:
            return Running(f"Volcano has the command, and has not acted on {target} yet")
        return Failed(f"Volcano has done nothing about {target} for {GIVE_UP_S:.0f} s; does its controller run?", state)
    if shown.replicas != operation.replicas:
        return Superseded(f"{target} is set to {shown.replicas} replicas by {_writer(answer.body)}", state)
    wanted = operation.replicas
    if shown.settled and shown.ready == wanted and shown.present == wanted:
        left = pods_of(api, target, answer.body, leaving=True) if operation.frees else []
        if isinstance(left, Rejected):
            return Failed(f"unknown outcome: {left.detail}")
        if left:  # they are not counted any more, and still have their GPUs
            return Running(f"{target} has {wanted} ready replicas, and {len(left)} pods are still ending")
        heirs = resize_new_pods(api, operation, answer.body)
        return Done(state, now_ns, "; ".join(filter(None, (f"{target} has {wanted} ready replicas", heirs))))
    stuck = _stuck(answer.body)
    if stuck:
        return Failed(f"{target} has {shown.ready} of {wanted} replicas ready: {stuck}", state)
    return Running(f"{target} has {shown.ready} of {wanted} replicas ready, {shown.present} exist")


def find_preparing(
    api: Api, target: Target, obj: Object, decision: Preempt, version: str, now_ns: int
) -> Operation | None:
    """The operation of a preemption whose pods are being prepared; ``version`` is the one on which it was claimed."""
    pods = pods_of(api, target, obj)
    ours = [] if isinstance(pods, Rejected) else [pod for pod in pods if annotation_of(pod, MARK) == decision.id]
    if not ours:
        return None
    return msgspec.structs.replace(_operation(decision, target, obj, ours, now_ns), version=version)


def _operation(decision: Scale | Preempt, target: Target, obj: Object, pods: list[Object], now_ns: int) -> Operation:
    checkpoint = isinstance(decision, Preempt) and decision.checkpoint
    return msgspec.structs.replace(
        count_of(decision, target, obj, now_ns),
        pods=names_of(pods),
        pod=" ".join(_victims(decision)),
        checkpoint=checkpoint,
        begun_ns=now_ns,
        until_ns=now_ns + round((GIVE_UP_S + preparation_timeout_s(pods, checkpoint=checkpoint)) * _NS),
        version=version_of(obj),
    )


def _victims(decision: Scale | Preempt) -> tuple[str, ...]:
    return decision.victims if isinstance(decision, Preempt) else ()


def _pods_to_prepare(api: Api, target: Target, obj: Object, decision: Scale | Preempt) -> list[Object] | Rejected:
    """Pods that will be removed, if they are known and one of them needs preparation."""
    if not isinstance(decision, Preempt) or not (decision.victims or decision.replicas == 0):
        return []
    pods = pods_of(api, target, obj)
    if isinstance(pods, Rejected):
        return pods
    going = [pod for pod in pods if decision.replicas == 0 or pod["metadata"]["name"] in decision.victims]
    return going if any(needs_preparation(pod, checkpoint=decision.checkpoint) for pod in going) else []


def _start_preparing(
    api: Api, target: Target, obj: Object, decision: Scale | Preempt, pods: list[Object], now_ns: int
) -> Handle | Rejected:
    operation = _operation(decision, target, obj, pods, now_ns)
    problem = mark_pods(api, pods, decision.id, (("fieldManager", manager(decision.id)),))
    if problem is not None:
        return problem
    waits, _ = prepare(api, pods, decision.id, now_ns, now_ns, checkpoint=operation.checkpoint)
    answer = waits or f"{len(pods)} pods of {target} are ready to go"
    return Handle(operation=operation.encode(), expected=decision.expected_state(SubjectState()), answer=answer)


def _continue_preparing(api: Api, operation: Operation, obj: Object, state: SubjectState, now_ns: int) -> Progress:
    """Prepare the pods and, once they are ready, set the number; a failure before that is undone."""
    target, decision = operation.target, operation.decision
    found = pods_of(api, target, obj)
    if isinstance(found, Rejected):
        return Failed(f"unknown outcome: {found.detail}")
    uids = {uid for _, uid in operation.going}
    pods = [pod for pod in found if pod["metadata"]["uid"] in uids]
    if version_of(obj) != operation.version:
        unmark_pods(api, pods, decision)
        return Superseded(f"{target} was changed by {_writer(obj)} before its pods were ready to go", state)
    waits, checkpoints = prepare(api, pods, decision, operation.begun_ns, now_ns, checkpoint=operation.checkpoint)
    if waits and now_ns < operation.until_ns:
        return Running(waits)
    victims, query = tuple(operation.pod.split()), (("fieldManager", manager(decision)),)
    answer = _set(api, target, obj, operation.replicas, victims, query)
    if isinstance(answer, Rejected):
        unmark_pods(api, pods, decision)
        return Failed(f"nothing was stopped, and the pods serve on: {answer.detail}", state)
    text = _describe(target, target.controller.status(obj), operation.replicas, answer, dry_run=False)
    return Running("; ".join(filter(None, (checkpoints, text))))


def _set(
    api: Api,
    target: Target,
    obj: Object,
    wanted: int,
    victims: tuple[str, ...],
    query: tuple[tuple[str, str], ...],
) -> Answer | Rejected:
    """Mark the victims and write the number; if one is refused, the marks are removed."""
    deletion_cost_pods = victims if target.kind == "Deployment" else ()  # of any other, all pods go
    for victim in deletion_cost_pods:
        body = {"metadata": {"annotations": {COST: _FIRST_TO_GO}}}
        cost = api.call("PATCH", pod_path(target.namespace, victim), body, query, MERGE)
        if not cost.ok:
            return refused(cost, f"marking pod {target.namespace}/{victim} as the first to go")
    answer = _written(api, target, obj, wanted, query)
    if isinstance(answer, Rejected):
        no_cost = {"metadata": {"annotations": {COST: None}}}
        for victim in deletion_cost_pods:
            api.call("PATCH", pod_path(target.namespace, victim), no_cost, query, MERGE)
    return answer


def _unsupported(target: Target, obj: Object, wanted: int, victims: tuple[str, ...]) -> Rejected | None:
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
    if managed_by(obj, _AUTOSCALER, "scale"):
        return Rejected(
            "conflict",
            f"a HorizontalPodAutoscaler scales {target}, and would take back what is written; delete it, or leave the "
            "workload out of actuator.allow",
        )
    if victims and wanted and target.kind != "Deployment":
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
        fresh = api.get(target.path)
        if not fresh.ok:
            return refused(fresh, f"reading {target}")
        obj = fresh.body
        if _fixed(target, obj) != first:
            return Rejected(
                "conflict", f"{target} was changed by {_writer(obj)} meanwhile; decide again on what it is now"
            )
    return Rejected("conflict", f"{target} changed {_TRIES} times while it was written; decide again when it is calm")


def _fixed(target: Target, obj: Object) -> tuple[Any, ...]:
    shown = target.controller.status(obj)
    return obj["metadata"]["uid"], obj["metadata"].get("generation"), shown.replicas, shown.suspended


def _writer(obj: Object) -> str:
    """Field manager of the last change, status excepted."""
    writers = sorted(field_managers_of(obj), key=lambda entry: str(entry.get("time", "")))
    return repr(writers[-1].get("manager", "")) if writers else "somebody"


def _stuck(obj: Object) -> str:
    conditions: list[Object] = status_of(obj).get("conditions") or []
    for condition in conditions:
        if condition.get("type") == "Progressing" and condition.get("reason") == "ProgressDeadlineExceeded":
            return str(condition.get("message", "its progress deadline has passed"))
    return ""


def _describe(target: Target, shown: ReplicaStatus, wanted: int, answer: Answer, dry_run: bool) -> str:
    be = "would be" if dry_run else "was"
    audit = f" (audit id {answer.audit_id})" if answer.audit_id else ""
    return f"{target} {be} set from {shown.replicas} to {wanted} replicas{audit}"
