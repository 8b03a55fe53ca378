"""Resizes new pods to the size of their siblings that were resized in place.

An in-place resize changes pods, not the template. So a new pod is given the latest size of its siblings: pods of the
same owner and revision, because a changed template has a size of its own. This happens where this actuator adds the
pods. Pods that start otherwise (an autoscaler, a drain, a crash) have the template's size until the next resize
decision.
"""

from flyball_actuators.platforms.base import Rejected
from flyball_actuators.platforms.calls import stopped
from flyball_actuators.platforms.kubernetes.api import Api
from flyball_actuators.platforms.kubernetes.kinds import Object, owner_of
from flyball_actuators.platforms.kubernetes.operation import Operation, manager
from flyball_actuators.platforms.kubernetes.pods import pods_of
from flyball_actuators.platforms.kubernetes.resize import has, mark_of, patched, resources_of

_REVISION = "controller-revision-hash"


def resize_new_pods(api: Api, operation: Operation, obj: Object) -> str:
    """Resize new pods like their siblings; return the result as text, empty if there was nothing to do."""
    if operation.frees or not operation.replicas:
        return ""
    pods = pods_of(api, operation.target, obj)
    if isinstance(pods, Rejected):
        return ""
    resized = sorted((pod for pod in pods if mark_of(pod)), key=lambda pod: str((mark_of(pod) or {}).get("time", "")))
    resized_by_revision = {_revision_of(pod): pod for pod in resized}  # the last one counts
    new_pods = [pod for pod in pods if mark_of(pod) is None and _revision_of(pod) in resized_by_revision]
    errors: list[str] = []
    for pod in new_pods:
        wanted = resources_of(resized_by_revision[_revision_of(pod)])
        if has(pod, wanted) or stopped():
            continue
        answer = patched(api, pod, wanted, manager(operation.decision), dry=False)
        errors.append("" if answer.ok else answer.message)
    refused = [message for message in errors if message]
    if refused:
        return f"{len(refused)} new pods stay as the template says: {refused[0]}"
    return f"{len(errors)} new pods have the size of their siblings" if errors else ""


def _revision_of(pod: Object) -> tuple[str, str]:
    labels: dict[str, str] = pod["metadata"].get("labels") or {}
    return str(owner_of(pod).get("uid", "")), labels.get(_REVISION, "")
