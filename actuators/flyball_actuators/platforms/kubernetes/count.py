"""Replicas up and down: the scale subresource, a Job's parallelism, and suspend."""

from typing import Any

from flyball_actuators.platforms.base import Done, Failed, Handle, Progress, Rejected, Running, Superseded
from flyball_actuators.platforms.kubernetes.api import JSON, MERGE, Answer, Api, refused
from flyball_actuators.platforms.kubernetes.kinds import Object, Shown, status_of, writers_of
from flyball_actuators.platforms.kubernetes.operation import Operation, manager, operation_of
from flyball_actuators.platforms.kubernetes.pods import pod_path, pods_of
from flyball_actuators.platforms.kubernetes.targets import Target
from flyball_actuators.platforms.states import expected_of
from flyball_contracts.records import Preempt, Scale, SubjectState

COST = "controller.kubernetes.io/pod-deletion-cost"
_FIRST_TO_GO = "-1000000"
_TRIES = 8
_AUTOSCALER = "kube-controller-manager"  # of all that it does, only the autoscaler writes the scale subresource


def count(api: Api, target: Target, thing: Object, decision: Scale | Preempt, *, dry_run: bool) -> Handle | Rejected:
    """Set the number of replicas, provided that nobody has changed the object's specification since it was read."""
    shown, wanted = target.of.show(thing), decision.replicas
    victims = decision.victims if isinstance(decision, Preempt) else ()
    problem = _possible(target, thing, wanted, victims)
    if problem is not None:
        return problem
    query = (("fieldManager", manager(decision.id)), *((("dryRun", "All"),) if dry_run else ()))
    marked_pods = victims if target.kind == "Deployment" else ()  # of any other, all pods go
    for victim in marked_pods:
        body = {"metadata": {"annotations": {COST: _FIRST_TO_GO}}}
        marked = api.call("PATCH", pod_path(target.namespace, victim), body, query, MERGE)
        if not marked.ok:
            return refused(marked, f"marking pod {target.namespace}/{victim} as the first to go")
    answer = _written(api, target, thing, wanted, query)
    if isinstance(answer, Rejected):  # nothing was changed, so nothing is left behind
        unmarked = {"metadata": {"annotations": {COST: None}}}
        for victim in marked_pods:
            api.call("PATCH", pod_path(target.namespace, victim), unmarked, query, MERGE)
        return answer
    operation = count_of(decision, target, thing)
    return Handle(
        operation="" if dry_run else operation.encode(),
        expected=expected_of(decision, SubjectState()),
        answer=_words(target, shown, wanted, answer, dry_run),
    )


def count_of(decision: Scale | Preempt, target: Target, thing: Object) -> Operation:
    """The operation that sets a controller to the number of replicas that a decision asks for."""
    frees = decision.replicas < decision.replicas_before
    return operation_of("count", decision, target, thing, replicas=decision.replicas, frees=frees)


def watch_count(api: Api, operation: Operation, now_ns: int) -> Progress:
    """How far the controller is: done once as many serve as are asked for, and those that go are gone."""
    target = operation.target
    answer = api.get(target.path)
    if answer.status == 404 or (answer.ok and answer.body["metadata"]["uid"] != operation.uid):
        return Failed(f"{target} is gone; whoever deleted it has decided otherwise")
    if not answer.ok:
        return Failed(f"unknown outcome: {refused(answer, f'reading {target}').detail}")
    shown = target.of.show(answer.body)
    state = SubjectState(replicas=shown.replicas, ready=shown.ready, suspended=shown.suspended)
    if shown.finished:
        return Superseded(f"{target} has ended by itself", state)
    if shown.replicas != operation.replicas:
        return Superseded(f"{target} is set to {shown.replicas} replicas by {_writer(answer.body)}", state)
    wanted = operation.replicas
    if shown.settled and shown.ready == wanted and shown.present == wanted:
        left = pods_of(api, target, answer.body, leaving=True) if operation.frees else []
        if isinstance(left, Rejected):
            return Failed(f"unknown outcome: {left.detail}")
        if left:  # they are not counted any more, and still have their GPUs
            return Running(f"{target} has {wanted} ready replicas, and {len(left)} pods are still ending")
        return Done(state, now_ns, f"{target} has {wanted} ready replicas")
    stuck = _stuck(answer.body)
    if stuck:
        return Failed(f"{target} has {shown.ready} of {wanted} replicas ready: {stuck}", state)
    return Running(f"{target} has {shown.ready} of {wanted} replicas ready, {shown.present} exist")


def written_by(thing: Object, name: str, subresource: str | None = None) -> bool:
    """Whether a change of this manager, by this subresource, is the last one of some field of the object."""
    return any(
        entry.get("manager") == name and subresource in (None, entry.get("subresource")) for entry in writers_of(thing)
    )


def _possible(target: Target, thing: Object, wanted: int, victims: tuple[str, ...]) -> Rejected | None:
    shown = target.of.show(thing)
    if shown.finished:
        return Rejected("conflict", f"{target} has ended; start it anew, or remove the workload")
    whole = target.of.show({**thing, "spec": {**thing["spec"], "suspend": False}}).replicas
    if target.of.lever == "suspend" and wanted not in (0, whole):
        return Rejected(
            "unsupported", f"{target} can be suspended and resumed, not resized; ask for all replicas or none"
        )
    if written_by(thing, _AUTOSCALER, "scale"):
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
    api: Api, target: Target, thing: Object, wanted: int, query: tuple[tuple[str, str], ...]
) -> Answer | Rejected:
    """Write under the version that was read; a newer version is taken where only the status has changed."""
    first = _fixed(target, thing)
    for _ in range(_TRIES):
        metadata = thing["metadata"]
        named = {"name": target.name, "namespace": target.namespace, "resourceVersion": metadata["resourceVersion"]}
        if target.of.lever == "scale":
            body: Any = {
                "apiVersion": "autoscaling/v1",
                "kind": "Scale",
                "metadata": {**named, "uid": metadata["uid"]},
                "spec": {"replicas": wanted},
            }
            answer = api.call("PUT", f"{target.path}/scale", body, query, JSON)
        else:
            spec: dict[str, Any] = {"suspend": wanted == 0}
            if wanted and target.of.lever == "parallelism":
                spec["parallelism"] = wanted
            body = {"apiVersion": target.of.group, "kind": target.kind, "metadata": named, "spec": spec}
            answer = api.call("PATCH", target.path, body, query, MERGE)
        if answer.ok:
            return answer
        if answer.status != 409:
            return refused(answer, f"setting {target} to {wanted} replicas")
        fresh = api.get(target.path)
        if not fresh.ok:
            return refused(fresh, f"reading {target}")
        thing = fresh.body
        if _fixed(target, thing) != first:
            return Rejected(
                "conflict", f"{target} was changed by {_writer(thing)} meanwhile; decide again on what it is now"
            )
    return Rejected("conflict", f"{target} changed {_TRIES} times while it was written; decide again when it is calm")


def _fixed(target: Target, thing: Object) -> tuple[Any, ...]:
    shown = target.of.show(thing)
    return thing["metadata"]["uid"], thing["metadata"].get("generation"), shown.replicas, shown.suspended


def _writer(thing: Object) -> str:
    """Who changed the object last, its status apart."""
    writers = sorted(writers_of(thing), key=lambda entry: str(entry.get("time", "")))
    return repr(writers[-1].get("manager", "")) if writers else "somebody"


def _stuck(thing: Object) -> str:
    conditions: list[Object] = status_of(thing).get("conditions") or []
    for condition in conditions:
        if condition.get("type") == "Progressing" and condition.get("reason") == "ProgressDeadlineExceeded":
            return str(condition.get("message", "its progress deadline has passed"))
    return ""


def _words(target: Target, shown: Shown, wanted: int, answer: Answer, dry_run: bool) -> str:
    told = "would be" if dry_run else "was"
    audit = f" (audit id {answer.audit_id})" if answer.audit_id else ""
    return f"{target} {told} set from {shown.replicas} to {wanted} replicas{audit}"
