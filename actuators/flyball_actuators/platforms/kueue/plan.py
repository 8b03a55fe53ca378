"""The changes that a decision makes to a Workload in Kueue, and what Kueue does not support."""

from flyball_actuators.platforms.base import Rejected
from flyball_actuators.platforms.kubernetes.kinds import Object, annotation_of
from flyball_actuators.platforms.kubernetes.targets import Target
from flyball_actuators.platforms.kueue.entry import PRIORITY_CLASS, Entry
from flyball_contracts.records import AnyDecision, Preempt, Scale, SetsReplicas

PRIORITY = "flyball.dev/priority"


def unsupported(target: Target, obj: Object, entry: Entry, decision: AnyDecision) -> Rejected | None:
    """Rejection for what Kueue cannot do."""
    if not isinstance(decision, SetsReplicas):
        return Rejected("unsupported", f"Kueue cannot move one pod of {target}; preempt it, and start it elsewhere")
    if isinstance(decision, Scale) and (decision.power_limit_w or decision.resources):
        return Rejected("unsupported", f"Kueue gives {target} neither power nor resources; decide on replicas alone")
    whole = target.controller.status({**obj, "spec": {**obj["spec"], "suspend": False}}).replicas
    if decision.replicas not in (0, whole):
        return Rejected(
            "unsupported", f"Kueue starts and stops {target} as a whole; request all {whole} replicas or none"
        )
    shown = target.controller.status(obj)
    if shown.finished:
        return Rejected("conflict", f"{target} has ended; start it again, or remove the workload")
    return None


def changes(decision: Scale | Preempt, obj: Object, entry: Entry) -> Object:
    """Fields to write to a Workload: whether it may run, and a priority if nothing else sets one."""
    found: Object = {}
    if entry.active != bool(decision.replicas):
        found["active"] = bool(decision.replicas)
    labels: dict[str, str] = obj["metadata"].get("labels") or {}
    text = annotation_of(obj, PRIORITY)
    by_class = PRIORITY_CLASS in labels or entry.obj["spec"].get("priorityClassRef")
    if decision.replicas and text.lstrip("-").isdecimal() and not by_class:
        priority = int(text)
        if entry.obj["spec"].get("priority", 0) != priority:
            found["priority"] = priority
    return found


def describe(
    target: Target,
    obj: Object,
    entry: Entry,
    decision: Scale | Preempt,
    place: dict[str, str],
    to_write: Object,
    *,
    dry_run: bool,
) -> str:
    """The changes as text."""
    be = "would be" if dry_run else "is"
    if not decision.replicas:
        return f"{target} {be} inactive in Kueue, which stops its {entry.gang} pods"
    if place and target.controller.status(obj).replicas:
        return f"{target} {be} to run on nodes with {', '.join(f'{k}={v}' for k, v in place.items())}"
    where = f", on nodes with {', '.join(f'{k}={v}' for k, v in place.items())}" if place else ""
    priority = f" with priority {to_write['priority']}" if "priority" in to_write else ""
    return f"{target} {be} admitted by Kueue{priority}{where}, once {entry.queue} has quota for its {entry.gang} pods"
