"""The controllers that Flyball can command: where they are, and how each shows and takes a number of replicas."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

Lever = Literal["scale", "parallelism", "suspend"]
"""What sets the number: the scale subresource, a Job's parallelism, or nothing but stop and go."""
Object = dict[str, Any]


_LAST = ("Complete", "Completed", "Failed")


def status_of(thing: Object) -> Object:
    """Its status, empty while there is none."""
    status: Object = thing.get("status") or {}
    return status


def note_of(thing: Object, key: str) -> str:
    """One of its annotations, or empty."""
    notes: dict[str, str] = thing["metadata"].get("annotations") or {}
    return notes.get(key, "")


def owner_of(thing: Object) -> Object:
    """The reference to the controller that made it, empty where nothing did."""
    references: list[Object] = thing["metadata"].get("ownerReferences") or []
    nobody: Object = {}
    return next((reference for reference in references if reference.get("controller")), nobody)


def writers_of(thing: Object) -> list[Object]:
    """Who has written which of its fields, its status apart."""
    entries: list[Object] = thing["metadata"].get("managedFields") or []
    return [entry for entry in entries if entry.get("subresource") != "status"]


class Shown(NamedTuple):
    """Replicas that are asked for, those that serve, and those that exist; ``settled``: the controller has seen all."""

    replicas: int
    ready: int
    present: int
    settled: bool
    suspended: bool | None = None
    finished: bool = False


class Kind(NamedTuple):
    """One kind of controller."""

    name: str
    group: str
    resource: str
    lever: Lever
    show: Callable[[Object], Shown]

    def path(self, namespace: str, name: str = "") -> str:
        """Path of an object, or of the list of those in a namespace."""
        base = f"/apis/{self.group}/namespaces/{namespace}/{self.resource}"
        return f"{base}/{name}" if name else base


def _replicated(thing: Object) -> Shown:
    status, spec = status_of(thing), thing["spec"]
    seen = status.get("observedGeneration", 0) >= thing["metadata"].get("generation", 0)
    return Shown(spec.get("replicas", 1), status.get("readyReplicas") or 0, status.get("replicas") or 0, seen)


def _groups(thing: Object) -> Shown:
    return _replicated(thing)._replace(settled=True)  # a LeaderWorkerSet tells no observedGeneration


def _job(thing: Object) -> Shown:
    status, spec = status_of(thing), thing["spec"]
    suspended = bool(spec.get("suspend"))
    replicas = 0 if suspended else spec.get("parallelism", 1)
    active, ready = status.get("active") or 0, status.get("ready") or 0
    return Shown(replicas, ready, active, True, suspended, _ended(status))


def _jobs(thing: Object) -> Shown:
    status, spec = status_of(thing), thing["spec"]
    suspended = bool(spec.get("suspend"))
    replicas = 0 if suspended else sum(part.get("replicas", 1) for part in spec.get("replicatedJobs", ()))
    parts: list[Object] = status.get("replicatedJobsStatus") or []
    ready, active = (sum(part.get(key) or 0 for part in parts) for key in ("ready", "active"))
    return Shown(replicas, ready, max(ready, active), True, suspended, _ended(status))


def _ended(status: Object) -> bool:
    conditions: list[Object] = status.get("conditions") or []
    return any(c.get("type") in _LAST and c.get("status") == "True" for c in conditions)


KINDS = (
    Kind("Deployment", "apps/v1", "deployments", "scale", _replicated),
    Kind("StatefulSet", "apps/v1", "statefulsets", "scale", _replicated),
    Kind("LeaderWorkerSet", "leaderworkerset.x-k8s.io/v1", "leaderworkersets", "scale", _groups),
    Kind("Job", "batch/v1", "jobs", "parallelism", _job),
    Kind("JobSet", "jobset.x-k8s.io/v1alpha2", "jobsets", "suspend", _jobs),
)
SCALED = tuple(kind for kind in KINDS if kind.lever == "scale")
"""Those that autoscalers can scale."""
QUEUED = tuple(kind for kind in KINDS if kind.lever in ("parallelism", "suspend"))
"""Those that Kueue queues."""
BY_NAME = {kind.name: kind for kind in KINDS}
