"""Scales controllers: the scale subresource, a Job's parallelism, suspend, bounds, or Volcano's commands."""

import time

import msgspec

from flyball_actuators.platforms.base import Done, Failed, Handle, Progress, Rejected, Running, Superseded
from flyball_actuators.platforms.kubernetes.api import Answer, Api
from flyball_actuators.platforms.kubernetes.kinds import (
    Object,
    ReplicaStatus,
    annotation_of,
    field_managers_of,
    moment,
    status_of,
)
from flyball_actuators.platforms.kubernetes.operation import Operation, manager, names_of, operation_of
from flyball_actuators.platforms.kubernetes.pods import managed_by, pods_of
from flyball_actuators.platforms.kubernetes.replicas.ending import overdue, stuck_text
from flyball_actuators.platforms.kubernetes.replicas.going import (
    BY_COST,
    asks_for_checkpoint,
    give_back,
    pods_to_prepare,
    return_pods_of_others,
)
from flyball_actuators.platforms.kubernetes.replicas.new_pods import resize_new_pods
from flyball_actuators.platforms.kubernetes.replicas.undo import START_S, can_undo, undo, undone
from flyball_actuators.platforms.kubernetes.replicas.write import set_replicas, unsupported, writer_of
from flyball_actuators.platforms.kubernetes.saga import (
    MARK,
    mark_pods,
    preparation_timeout_s,
    prepare,
    unmark_pods,
)
from flyball_actuators.platforms.kubernetes.targets import Target, lost, read_object, unless_forbidden, version_of
from flyball_contracts.records import Preempt, Scale, SubjectState

GIVE_UP_S = 900.0
_NS = 1_000_000_000


def count(
    api: Api, target: Target, obj: Object, decision: Scale | Preempt, now_ns: int, *, dry_run: bool
) -> Handle | Rejected:
    """Set the number of replicas, if the object's specification is unchanged since it was read.

    If pods that go must be prepared first, only their preparation is started, and :func:`poll_count` sets the number
    later.
    """
    shown, wanted = target.controller.status(obj), decision.replicas
    victims = decision.victims if isinstance(decision, Preempt) else ()
    problem = unsupported(target, obj, wanted, victims)
    if problem is not None:
        return problem
    query = (("fieldManager", manager(decision.id)), *((("dryRun", "All"),) if dry_run else ()))
    first = [] if dry_run else pods_to_prepare(api, target, obj, decision)
    if isinstance(first, Rejected):
        return first
    if first:
        return _start_preparing(api, target, obj, decision, first, now_ns)
    answer = set_replicas(api, target, obj, wanted, victims, query)
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
    patience_s = GIVE_UP_S if target.controller.scale_method == "command" else START_S
    return operation_of(
        "count",
        decision,
        target,
        obj,
        replicas=decision.replicas,
        before=decision.replicas_before,
        frees=decision.replicas < decision.replicas_before,
        until_ns=now_ns + round(patience_s * _NS),
    )


def is_applied(obj: Object, target: Target, decision: str, replicas: int) -> bool:
    """Whether the object shows that a decision was applied: its field manager or, for Volcano, the number."""
    if target.controller.scale_method == "command":
        return target.controller.status(obj).replicas == replicas
    return managed_by(obj, manager(decision))


def poll_count(api: Api, operation: Operation, now_ns: int, *, rollback: bool = False) -> Progress:
    """Progress of the controller: done once the requested replicas are ready and removed pods are gone.

    It has failed once ``operation.until_ns`` has passed (0: never); ending pods have their grace period in addition.
    With ``rollback``, new replicas that are not ready in time are taken away again, unless the object forbids it.
    """
    target = operation.target
    answer = read_object(api, target)
    if (problem := lost(answer, target, operation.uid)) is not None:
        return problem
    shown = target.controller.status(answer.body)
    state = SubjectState(replicas=shown.replicas, ready=shown.ready, suspended=shown.suspended)
    progress = _progress(api, operation, answer.body, state, now_ns)
    if operation.pods and not isinstance(progress, Running):
        give_back(api, target, answer.body, operation)
    if isinstance(progress, Failed) and rollback and can_undo(operation, answer.body):
        return undo(api, operation, answer.body, progress.answer, state)
    return progress


def _progress(api: Api, operation: Operation, obj: Object, state: SubjectState, now_ns: int) -> Progress:
    target, shown = operation.target, operation.target.controller.status(obj)
    if operation.pods and not is_applied(obj, target, operation.decision, operation.replicas):
        return _continue_preparing(api, operation, obj, state, now_ns)
    if shown.finished:
        return Superseded(f"{target} has ended by itself", state)
    if shown.replicas != operation.replicas and target.controller.scale_method == "command":
        if now_ns < operation.until_ns:
            return Running(f"Volcano has the command, and has not acted on {target} yet")
        return Failed(f"Volcano has done nothing about {target} for {GIVE_UP_S:.0f} s; does its controller run?", state)
    if shown.replicas != operation.replicas:
        return undone(operation, obj, state) or Superseded(
            f"{target} is set to {shown.replicas} replicas by {writer_of(obj)}", state
        )
    wanted, late = operation.replicas, 0 < _deadline_ns(operation, obj) <= now_ns
    there = shown.settled and shown.ready == wanted and shown.present == wanted
    left = unless_forbidden(pods_of(api, target, obj, leaving=True)) if operation.frees and (there or late) else []
    if isinstance(left, Rejected):
        return Failed(f"unknown outcome: {left.detail}")
    if there and not left:
        heirs = resize_new_pods(api, operation, obj)
        return Done(state, now_ns, "; ".join(filter(None, (f"{target} has {wanted} ready replicas", heirs))))
    stuck = "" if there else _stuck(obj)
    if not stuck and late and (held := overdue(left, now_ns)):
        stuck = stuck_text(held)
    elif not stuck and late and not left:
        missing = shown.ready < wanted
        stuck = "the others did not become ready in time" if missing else f"{shown.present} exist; see its controller"
    has = f"{target} has {shown.ready} of {wanted} replicas ready"
    if stuck:
        return Failed(f"{has}: {stuck}", state)
    if there:  # ending pods are not counted any more, but still hold their GPUs
        return Running(f"{target} has {wanted} ready replicas, and {len(left)} pods are still ending")
    return Running(f"{has}, {shown.present} exist")


def take_back_count(api: Api, operation: Operation) -> Progress | None:
    """Let pods that are prepared for a lower number serve on; ``None`` if it is written, or no pod is prepared."""
    target = operation.target
    answer = read_object(api, target)
    if not operation.pods or lost(answer, target, operation.uid) is not None:
        return None
    obj = answer.body
    if is_applied(obj, target, operation.decision, operation.replicas) or version_of(obj) != operation.version:
        return None
    found = unless_forbidden(pods_of(api, target, obj))
    if isinstance(found, Rejected):
        return None
    uids = {uid for _, uid in operation.going}
    unmark_pods(api, [pod for pod in found if pod["metadata"]["uid"] in uids], operation.decision)
    shown = target.controller.status(obj)
    state = SubjectState(replicas=shown.replicas, ready=shown.ready, suspended=shown.suspended)
    return Failed("nothing was stopped, and the pods serve on", state)


def _deadline_ns(operation: Operation, obj: Object) -> int:
    """Time by which an operation must have ended, in ns since the Unix epoch; 0 where there is none."""
    until_ns = operation.until_ns
    if until_ns and operation.target.controller.scale_method == "command":  # the time for Volcano to take the command
        until_ns += round(START_S * _NS)
    if until_ns and operation.pods:  # a stop may have held up their preparation, and with it the write
        written = [one for one in field_managers_of(obj) if one.get("manager") == manager(operation.decision)]
        times_ns = [moment(one.get("time")) + round(GIVE_UP_S * _NS) for one in written]
        until_ns = max(until_ns, *times_ns) if times_ns else until_ns
    return until_ns


def find_count(api: Api, target: Target, obj: Object, decision: Scale | Preempt, version: str) -> Operation | None:
    """The operation of a decision that was submitted: the number is its own, or pods are prepared for it.

    ``version`` is the one on which it was claimed.
    """
    now_ns = time.time_ns()
    pods = pods_of(api, target, obj)
    ours = [] if isinstance(pods, Rejected) else [pod for pod in pods if annotation_of(pod, MARK) == decision.id]
    if ours:
        return msgspec.structs.replace(_operation(decision, target, obj, ours, now_ns), version=version)
    operation = count_of(decision, target, obj, now_ns)
    state = SubjectState(replicas=target.controller.status(obj).replicas)
    own = is_applied(obj, target, decision.id, decision.replicas) or undone(operation, obj, state) is not None
    return operation if own else None


def _operation(decision: Scale | Preempt, target: Target, obj: Object, pods: list[Object], now_ns: int) -> Operation:
    checkpoint = asks_for_checkpoint(decision)
    named = decision.victims if isinstance(decision, Preempt) else ()
    by_cost = decision.replicas and target.kind in BY_COST
    victims = named or (tuple(pod["metadata"]["name"] for pod in pods) if by_cost else ())
    return msgspec.structs.replace(
        count_of(decision, target, obj, now_ns),
        pods=names_of(pods),
        pod=" ".join(victims),
        checkpoint=checkpoint,
        begun_ns=now_ns,
        until_ns=now_ns + round((GIVE_UP_S + preparation_timeout_s(pods, checkpoint=checkpoint)) * _NS),
        version=version_of(obj),
    )


def _start_preparing(
    api: Api, target: Target, obj: Object, decision: Scale | Preempt, pods: list[Object], now_ns: int
) -> Handle | Rejected:
    operation = _operation(decision, target, obj, pods, now_ns)
    return_pods_of_others(api, target, obj, operation)
    problem = mark_pods(api, pods, decision.id, (("fieldManager", manager(decision.id)),))
    if problem is not None:
        return problem
    waits, _ = prepare(api, pods, decision.id, now_ns, now_ns, checkpoint=operation.checkpoint)
    answer = waits or f"{len(pods)} pods of {target} are ready to go"
    return Handle(operation=operation.encode(), expected=decision.expected_state(SubjectState()), answer=answer)


def _continue_preparing(api: Api, operation: Operation, obj: Object, state: SubjectState, now_ns: int) -> Progress:
    """Prepare the pods and, once they are ready, set the number; a failure before that is undone."""
    target, decision = operation.target, operation.decision
    found = unless_forbidden(pods_of(api, target, obj))
    if isinstance(found, Rejected):
        return Failed(f"unknown outcome: {found.detail}")
    uids = {uid for _, uid in operation.going}
    pods = [pod for pod in found if pod["metadata"]["uid"] in uids]
    if version_of(obj) != operation.version:
        unmark_pods(api, pods, decision)
        return Superseded(f"{target} was changed by {writer_of(obj)} before its pods were ready to go", state)
    waits, checkpoints = prepare(api, pods, decision, operation.begun_ns, now_ns, checkpoint=operation.checkpoint)
    if waits and now_ns < operation.until_ns:
        return Running(waits)
    here = {pod["metadata"]["name"] for pod in pods}  # a pod that died meanwhile cannot go any more
    victims = tuple(name for name in operation.pod.split() if name in here)
    query = (("fieldManager", manager(decision)),)
    answer = set_replicas(api, target, obj, operation.replicas, victims, query)
    if isinstance(answer, Rejected):
        unmark_pods(api, pods, decision)
        return Failed(f"nothing was stopped, and the pods serve on: {answer.detail}", state)
    text = _describe(target, target.controller.status(obj), operation.replicas, answer, dry_run=False)
    return Running("; ".join(filter(None, (checkpoints, text))))


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
