"""Sends Commands to Volcano: one object each, which Volcano deletes once it has read it."""

import hashlib

from flyball_actuators.platforms.base import Rejected
from flyball_actuators.platforms.kubernetes.api import JSON, Answer, Api, refused
from flyball_actuators.platforms.kubernetes.kinds import Object, status_of
from flyball_actuators.platforms.kubernetes.targets import Target

BUS = "bus.volcano.sh/v1alpha1"


_MAX_RETRY = 3


def last_retry(target: Target, obj: Object) -> Rejected | None:
    """Rejection if the next resume would fail the job: Volcano counts it as a retry, and limits the retries of a job.

    ``spec.maxRetry`` is 3 if it is not set.
    """
    retries, limit = int(status_of(obj).get("retryCount") or 0), int(obj["spec"].get("maxRetry", _MAX_RETRY))
    if retries + 1 < limit:
        return None
    return Rejected(
        "unsupported",
        f"Volcano would fail {target} instead of resuming it: it counts a resume as a retry, and the job has {retries} "
        f"of {limit} behind it; raise its spec.maxRetry",
    )


def send_command(
    api: Api, target: Target, obj: Object, wanted: int, query: tuple[tuple[str, str], ...]
) -> Answer | Rejected:
    """Send a Command to abort or resume a job; the same decision sends the same Command."""
    owner = {
        "apiVersion": target.controller.group,
        "kind": "Job",
        "name": target.name,
        "uid": obj["metadata"]["uid"],
        "controller": True,
    }
    manager = dict(query).get("fieldManager", "")
    body = {
        "apiVersion": BUS,
        "kind": "Command",
        "metadata": {
            "name": f"flyball-{hashlib.sha256(manager.encode()).hexdigest()[:32]}",
            "namespace": target.namespace,
            "ownerReferences": [owner],
        },
        "target": owner,
        "action": "ResumeJob" if wanted else "AbortJob",
        "reason": "Flyball",
        "message": manager,
    }
    answer = api.call("POST", f"/apis/{BUS}/namespaces/{target.namespace}/commands", body, query, JSON)
    if answer.ok or answer.status == 409:  # the same Command is there already, and not read yet
        return answer
    return refused(answer, f"telling Volcano about {target}")
