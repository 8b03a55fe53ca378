"""Objects that run workloads, and the specifications from their annotations."""

import difflib
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec
import yaml

from flyball_actuators.controller.pods import OBJECT, gpu_requests_of
from flyball_actuators.controller.taints import Tolerations, tolerations_of
from flyball_actuators.platforms.kubernetes.kinds import BY_NAME, Object, annotation_of, owner_of
from flyball_actuators.platforms.kubernetes.targets import workload_of
from flyball_contracts.config.reading.yaml_text import YamlLoader
from flyball_contracts.declared.document import WorkloadDocument
from flyball_contracts.declared.fields import BY_ANNOTATION, FROM_CLUSTER, PREFIX, camel
from flyball_contracts.declared.names import ANNOTATION, foreign
from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import WorkloadSpec

_OTHERS = {ANNOTATION, *(PREFIX + word for word in ("server", "work", "cordoned-for", "cordoned-until", "rollback"))}
_JOBS = ("Job", "JobSet", "TrainJob", "VolcanoJob")
_GANGS = ("JobSet", "TrainJob", "VolcanoJob")


class Kind(NamedTuple):
    """A kind of object: where it is listed; ``size`` gives an object's GPUs per replica and number of replicas."""

    name: str
    group: str
    resource: str
    size: Callable[[Object], tuple[float, int]]

    def path(self, namespace: str) -> str:
        """Path of the list in a namespace, or in the whole cluster."""
        return f"/apis/{self.group}/{f'namespaces/{namespace}/' * bool(namespace)}{self.resource}"


class Declared(NamedTuple):
    """An object and its annotations; ``gpus`` and ``replicas`` are what it requests when it runs.

    ``tolerations`` are those of its pods.
    """

    kind: str
    namespace: str
    name: str
    created_ns: int
    workload: str
    annotated: bool
    annotations: Mapping[str, str]
    labels: Mapping[str, str]
    gpus: float
    replicas: int
    tolerations: Tolerations = frozenset()

    @property
    def object(self) -> OBJECT:
        """Kind, namespace and name."""
        return self.kind, self.namespace, self.name

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


def declared_by(kind: str) -> Callable[[Object], Declared | None]:
    """Converter for objects of a kind; it returns ``None`` for objects owned by another listed object."""
    size = SIZES[kind]

    def convert(obj: Object) -> Declared | None:
        if owner_of(obj).get("kind") in SIZES:
            return None
        metadata = obj["metadata"]
        annotations: dict[str, str] = metadata.get("annotations") or {}
        gpus, replicas = size(obj)
        return Declared(
            kind=kind,
            namespace=metadata["namespace"],
            name=metadata["name"],
            created_ns=moment_of(metadata),
            workload=workload_of(obj),
            annotated=bool(annotation_of(obj, ANNOTATION)),
            annotations={key: value for key, value in annotations.items() if key.startswith(PREFIX)},
            labels=metadata.get("labels") or {},
            gpus=gpus,
            replicas=replicas,
            tolerations=tolerations_of(obj),
        )

    return convert


def moment_of(metadata: Object) -> int:
    """Creation time of an object, in ns since the Unix epoch."""
    text = metadata.get("creationTimestamp") or "1970-01-01T00:00:00Z"
    return int(datetime.fromisoformat(text).timestamp()) * NS_PER_S


def fields_on(declared: Declared) -> dict[str, Any]:
    """Document fields from annotations; raises :class:`ValueError` for an unknown annotation."""
    found: dict[str, Any] = {}
    for key, text in declared.annotations.items():
        field = BY_ANNOTATION.get(key)
        if field is None:
            if key in _OTHERS:
                continue
            near = difflib.get_close_matches(key, BY_ANNOTATION, 1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(sorted(BY_ANNOTATION))}"
            raise ValueError(f"annotation {key} is not known; {hint}")
        try:
            found[field] = yaml.load(text, YamlLoader) if text.lstrip()[:1] in ("{", "[") else text
        except (yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError, RecursionError) as error:
            # PyYAML's constructors raise the others: an int without digits, a time without a date, deep nesting.
            raise ValueError(f"annotation {key} is no YAML") from error
    return found


def spec_of(declared: Declared, layers: Sequence[Mapping[str, Any]], cell: str) -> WorkloadSpec:
    """Specification from an object's requests, its annotations and further layers; later layers take precedence.

    Its time is 0. Without limits, the replicas are those of the object. A deadline that is a duration starts at the
    object's creation. Raises :class:`ValueError` with what to correct.
    """
    if problem := foreign(declared.annotations.get(ANNOTATION, ""), declared.namespace):
        raise ValueError(problem)
    fields: dict[str, Any] = {
        "kind": "training" if declared.kind in _JOBS else "inference",
        "gpus_per_replica": declared.gpus,
        **fields_on(declared),
    }
    for layer in layers:
        fields |= layer
    if not {"min_replicas", "max_replicas"} & fields.keys():
        allowed = {
            "interruptible": str(fields.get("interruptible", "")).lower() == "true",
            "restart_hung_after_s": fields.get("restart_hung_after_s") is not None,
        }
        if any(allowed.values()):
            field = next(name for name, is_set in allowed.items() if is_set)
            raise ValueError(f"{field} needs limits of the replicas to come back to; set max_replicas")
        fields |= {"min_replicas": declared.replicas, "max_replicas": declared.replicas}
    if declared.kind in _GANGS:
        fields.setdefault("gang_size", max(1, declared.replicas))  # it runs and stops as a whole
    name = declared.workload.removeprefix(f"{declared.namespace}/") if declared.annotated else "unnamed"
    try:
        document = msgspec.convert({**fields, "workload": name}, WorkloadDocument, strict=False)
    except msgspec.ValidationError as error:
        message, _, where = str(error).partition(" - at `$.")
        field = where.rstrip("`") or "workload"
        raise ValueError(f"{field} ({camel(field.partition('.')[0])}): {message}") from error
    except ValueError as error:
        raise ValueError(str(error)) from error
    if (found := document.contradiction()) is not None:
        raise ValueError(f"{found[0]}: {found[1]}")
    try:
        spec = document.spec(declared.created_ns)
    except ValueError as error:
        raise ValueError(f"deadline: {error}") from error
    own = dict(zip(FROM_CLUSTER, (declared.workload, cell, declared.namespace), strict=True))
    return msgspec.structs.replace(spec, time_ns=0, **own)


def _gpus(spec: Object) -> float:
    return float(sum(gpu_requests_of(spec).values()))


def _replicated(obj: Object) -> tuple[float, int]:
    spec = obj["spec"]
    return _gpus(spec["template"]["spec"]), spec.get("replicas", 1)


def _groups(obj: Object) -> tuple[float, int]:
    spec = obj["spec"]
    group = spec["leaderWorkerTemplate"]
    worker = _gpus(group["workerTemplate"]["spec"])
    leader = _gpus(group["leaderTemplate"]["spec"]) if group.get("leaderTemplate") else worker
    return leader + worker * (group.get("size", 1) - 1), spec.get("replicas", 1)


def _job(obj: Object) -> tuple[float, int]:
    spec = obj["spec"]
    return _gpus(spec["template"]["spec"]), spec.get("parallelism", 1)


def _jobs(obj: Object) -> tuple[float, int]:
    """A replica is one job; all have the same share of the GPUs."""
    total, count = 0.0, 0
    for part in obj["spec"].get("replicatedJobs") or ():
        replicas, job = part.get("replicas", 1), part["template"]["spec"]
        total += _gpus(job["template"]["spec"]) * job.get("parallelism", 1) * replicas
        count += replicas
    return total / max(1, count), count


def _trained(obj: Object) -> tuple[float, int]:
    """A TrainJob does not contain the requests of its runtime; it may override them per node."""
    trainer: Object = obj["spec"].get("trainer") or {}
    resources: Object = trainer.get("resourcesPerNode") or {}
    return _gpus({"containers": [{"resources": resources}]}), trainer.get("numNodes", 1)


def _tasks(obj: Object) -> tuple[float, int]:
    """A replica is a pod; all have the same share of the tasks' GPUs."""
    tasks: list[Object] = obj["spec"].get("tasks") or []
    count = sum(task.get("replicas", 1) for task in tasks)
    total = sum(_gpus(task["template"]["spec"]) * task.get("replicas", 1) for task in tasks)
    return total / max(1, count), count


def _service(obj: Object) -> tuple[float, int]:
    predictor: Object = obj["spec"].get("predictor") or {}
    containers = [*(predictor.get("containers") or ()), *([predictor["model"]] if predictor.get("model") else ())]
    return _gpus({"containers": containers}), predictor.get("minReplicas", 1)


SIZES: dict[str, Callable[[Object], tuple[float, int]]] = {
    "Deployment": _replicated,
    "StatefulSet": _replicated,
    "LeaderWorkerSet": _groups,
    "Job": _job,
    "JobSet": _jobs,
    "TrainJob": _trained,
    "VolcanoJob": _tasks,
    "InferenceService": _service,
}
KINDS = tuple(Kind(kind.name, kind.group, kind.resource, SIZES[kind.name]) for kind in BY_NAME.values())
