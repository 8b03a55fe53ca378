"""Pods that come later get the size of those that were resized.

A resize stands on the pods, and the template still says what it said. So a pod that is new takes over what its siblings
were given last: those of the same owner and revision, for a template that somebody has changed since has a size of its
own. It is done where this actuator adds the pods. Those that come otherwise (an autoscaler, a drain, a crash) start as
the template says, until the next decision about the size finds them.
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
    """Give new pods the size of their siblings; what became of it in words, empty where there is nothing to do."""
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
