"""The controllers that Flyball can scale: their API paths, status and scale method."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, Literal, NamedTuple

ScaleMethod = Literal["scale", "parallelism", "suspend", "command", "bounds"]
"""How replicas are set.

The scale subresource, a Job's parallelism, the bounds of an InferenceService's autoscaler, or only stop and start, by
the object's ``suspend`` field or by a Volcano Command.
"""
Object = dict[str, Any]

BEHIND = "behind"
"""Key under which an object that was read holds the Deployment that runs its replicas, if there is one."""
NO_AUTOSCALER = "none"

_LAST = ("Complete", "Completed", "Failed")
_STOPPED = ("Aborting", "Aborted")
_ENDED = ("Completing", "Completed", "Terminating", "Terminated", "Failed")
_NS = 1_000_000_000


def moment(text: str | None) -> int:
    """A time of an object, in ns since the Unix epoch; 0 where it has none."""
    return round(datetime.fromisoformat(text).timestamp() * _NS) if text else 0


def status_of(obj: Object) -> Object:
    """Status of an object, empty if it has none yet."""
    status: Object = obj.get("status") or {}
    return status


def annotation_of(obj: Object, key: str) -> str:
    """An annotation, or empty."""
    annotations: dict[str, str] = obj["metadata"].get("annotations") or {}
    return annotations.get(key, "")


def autoscaler_of(obj: Object) -> str:
    """Class of autoscaler that KServe gives an InferenceService."""
    return annotation_of(obj, "serving.kserve.io/autoscalerClass") or "hpa"


def phase_of(obj: Object) -> str:
    """The phase of a Volcano Job, empty while it has none."""
    state: Object = status_of(obj).get("state") or {}
    return str(state.get("phase", ""))


def owner_of(obj: Object) -> Object:
    """Reference to the controller that owns the object, empty without one."""
    references: list[Object] = obj["metadata"].get("ownerReferences") or []
    none: Object = {}
    return next((reference for reference in references if reference.get("controller")), none)


def field_managers_of(obj: Object) -> list[Object]:
    """Managed fields of the object, except those of the status subresource."""
    entries: list[Object] = obj["metadata"].get("managedFields") or []
    return [entry for entry in entries if entry.get("subresource") != "status"]


def field_manager_of(obj: Object, field: str) -> str:
    """Field manager of a field in the specification, in quotes, or a general term if it is unknown."""
    for entry in field_managers_of(obj):
        fields: Object = entry.get("fieldsV1") or {}
        if f"f:{field}" in (fields.get("f:spec") or {}):
            return repr(entry.get("manager", ""))
    return "another client"


def is_true(obj: Object, condition: str) -> bool:
    """Whether a condition in the object's status is true."""
    conditions: list[Object] = status_of(obj).get("conditions") or []
    return any(one.get("type") == condition and one.get("status") == "True" for one in conditions)


class ReplicaStatus(NamedTuple):
    """Numbers of replicas that are requested, ready, and present.

    ``settled``: the controller has observed the latest specification.
    """

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
    scale_method: ScaleMethod
    status: Callable[[Object], ReplicaStatus]
    label: str = ""
    """Label by which its pods name it; if empty, they are found by its selector."""
    behind: str = ""
    """Suffix that makes its name the name of the Deployment that runs its replicas; if empty, it runs them itself."""

    def path(self, namespace: str, name: str = "") -> str:
        """Path of an object, or of the list in a namespace."""
        base = f"/apis/{self.group}/namespaces/{namespace}/{self.resource}"
        return f"{base}/{name}" if name else base


def _replicated(obj: Object) -> ReplicaStatus:
    status, spec = status_of(obj), obj["spec"]
    seen = status.get("observedGeneration", 0) >= obj["metadata"].get("generation", 0)
    return ReplicaStatus(spec.get("replicas", 1), status.get("readyReplicas") or 0, status.get("replicas") or 0, seen)


def _groups(obj: Object) -> ReplicaStatus:
    return _replicated(obj)._replace(settled=True)  # a LeaderWorkerSet has no observedGeneration


def _served(obj: Object) -> ReplicaStatus:
    """Replicas of an InferenceService's predictor: those of its Deployment, unless its bounds fix the number."""
    predictor: Object = obj["spec"].get("predictor") or {}
    least, most = predictor.get("minReplicas", 1), predictor.get("maxReplicas", 0)
    behind: Object | None = obj.get(BEHIND)
    shown = ReplicaStatus(least, 0, 0, True) if behind is None else _replicated(behind)
    fixed = least == most or autoscaler_of(obj) == NO_AUTOSCALER
    return shown._replace(replicas=least) if fixed else shown


def _job(obj: Object) -> ReplicaStatus:
    status, spec = status_of(obj), obj["spec"]
    suspended = bool(spec.get("suspend"))
    replicas = 0 if suspended else spec.get("parallelism", 1)
    active, ready = status.get("active") or 0, status.get("ready") or 0
    return ReplicaStatus(replicas, ready, active, True, suspended, _ended(status))


def _jobs(obj: Object) -> ReplicaStatus:
    status, spec = status_of(obj), obj["spec"]
    suspended = bool(spec.get("suspend"))
    replicas = 0 if suspended else sum(part.get("replicas", 1) for part in spec.get("replicatedJobs", ()))
    parts: list[Object] = status.get("replicatedJobsStatus") or []
    ready, active = (sum(part.get(key) or 0 for part in parts) for key in ("ready", "active"))
    return ReplicaStatus(replicas, ready, max(ready, active), True, suspended, _ended(status))


def _trained(obj: Object) -> ReplicaStatus:
    """Replicas of a TrainJob are its nodes; it reports them together, as one job of its JobSet."""
    spec = obj["spec"]
    parts: list[Object] = status_of(obj).get("jobsStatus") or []
    trainer: Object = spec.get("trainer") or {}
    nodes = int(trainer.get("numNodes", 1))
    suspended = bool(spec.get("suspend"))
    ready = nodes if any(part.get("name") == "node" and part.get("ready") for part in parts) else 0
    present = nodes if any(part.get("active") or part.get("ready") for part in parts) else 0
    replicas = 0 if suspended else nodes
    return ReplicaStatus(replicas, ready, present, True, suspended, _ended(status_of(obj)))


def _aborted(obj: Object) -> ReplicaStatus:
    """State of a Volcano Job follows its phase; ``suspend: False`` in the spec shows it as if it were not stopped."""
    status, spec = status_of(obj), obj["spec"]
    phase, tasks = phase_of(obj), spec.get("tasks") or ()
    stopped = phase in _STOPPED and spec.get("suspend") is not False
    replicas = 0 if stopped else sum(task.get("replicas", 1) for task in tasks)
    running, others = status.get("running") or 0, (status.get("pending") or 0) + (status.get("terminating") or 0)
    return ReplicaStatus(replicas, running, running + others, phase != "Aborting", stopped, phase in _ENDED)


def _ended(status: Object) -> bool:
    conditions: list[Object] = status.get("conditions") or []
    return any(c.get("type") in _LAST and c.get("status") == "True" for c in conditions)


_JOBSET = "jobset.sigs.k8s.io/jobset-name"  # a TrainJob and its JobSet have one name
KINDS = (
    Kind("Deployment", "apps/v1", "deployments", "scale", _replicated),
    Kind("StatefulSet", "apps/v1", "statefulsets", "scale", _replicated),
    Kind(
        "LeaderWorkerSet", "leaderworkerset.x-k8s.io/v1", "leaderworkersets", "scale", _groups,
        "leaderworkerset.sigs.k8s.io/name",
    ),
    Kind(
        "InferenceService", "serving.kserve.io/v1beta1", "inferenceservices", "bounds", _served,
        "component=predictor,serving.kserve.io/inferenceservice", "-predictor",
    ),
    Kind("Job", "batch/v1", "jobs", "parallelism", _job),
    Kind("JobSet", "jobset.x-k8s.io/v1alpha2", "jobsets", "suspend", _jobs, _JOBSET),
    Kind("TrainJob", "trainer.kubeflow.org/v1alpha1", "trainjobs", "suspend", _trained, _JOBSET),
    Kind("VolcanoJob", "batch.volcano.sh/v1alpha1", "jobs", "command", _aborted, "volcano.sh/job-name"),
)  # fmt: skip
SCALED = tuple(kind for kind in KINDS if kind.scale_method == "scale")
"""Kinds that autoscalers can scale."""
QUEUED = tuple(kind for kind in KINDS if kind.scale_method in ("parallelism", "suspend"))
"""Kinds that Kueue queues."""
BY_NAME = {kind.name: kind for kind in KINDS}
