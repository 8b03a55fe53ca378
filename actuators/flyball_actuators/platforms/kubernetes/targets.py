"""Finds the object that runs a workload, by annotation or by name."""

import time
from threading import Lock
from typing import NamedTuple, TypeVar

from flyball_actuators.platforms.base import Failed, PlatformError, Rejected
from flyball_actuators.platforms.kubernetes.api import METADATA, Answer, Api, refused
from flyball_actuators.platforms.kubernetes.kinds import (
    BEHIND,
    BY_NAME,
    KINDS,
    Kind,
    Object,
    annotation_of,
    owner_of,
    phase_of,
)
from flyball_actuators.platforms.kubernetes.names import read_names
from flyball_contracts.declared.names import ANNOTATION, foreign

T = TypeVar("T")
VOLCANO = "batch.volcano.sh/"
_RELIST_S = 60.0


class Target(NamedTuple):
    """A controller by kind, namespace and name."""

    kind: str
    namespace: str
    name: str

    @property
    def controller(self) -> Kind:
        """Its kind."""
        return BY_NAME[self.kind]

    @property
    def path(self) -> str:
        """Its path in the API."""
        return self.controller.path(self.namespace, self.name)

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


class Targets:
    """The controllers of some namespaces, by workload; listed again for an unknown workload, and once a minute."""

    def __init__(self, api: Api, namespaces: tuple[str, ...], kinds: tuple[Kind, ...] = KINDS) -> None:
        self._api, self._namespaces, self._kinds = api, namespaces, kinds
        self._lock = Lock()
        self._known: dict[str, tuple[Target, ...]] = {}
        self._foreign: dict[str, str] = {}
        self._listed_s = -_RELIST_S

    def find(self, workload: str) -> tuple[Target, Object] | Rejected:
        """Read the object that runs a workload; ``Rejected`` if there is none or more than one.

        If objects of several namespaces claim it, the object in the namespace that the controller has written counts.
        """
        with self._lock:
            if workload not in self._known or time.monotonic() - self._listed_s >= _RELIST_S:
                problem = self._list()
                if problem is not None:
                    return problem
            found, misnamed = list(self._known.get(workload, ())), self._foreign.get(workload, "")
        spaces = ", ".join(self._namespaces)
        if not found and misnamed:
            return Rejected("unknown_target", misnamed)
        if not found:
            kinds = ", ".join(kind.name for kind in self._kinds)
            home, slash, _ = workload.partition("/")
            remedy = f"annotate its {kinds} with {ANNOTATION}: {workload}, or name its namespace in actuator.platforms"
            if slash and home not in self._namespaces:
                remedy = f"name namespace {home} in actuator.platforms"
            return Rejected("unknown_target", f"no object in namespace {spaces} runs workload {workload!r}; {remedy}")
        if len(found) > 1 and (homes := read_names(self._api).get(workload)):
            found = [one for one in found if one.namespace in homes] or found
        if len(found) > 1:
            return Rejected(
                "invalid",
                f"{' and '.join(map(str, found))} both claim workload {workload!r}; correct the "
                f"annotation {ANNOTATION} of one",
            )
        target = found[0]
        answer = read_object(self._api, target)
        if not answer.ok:
            self.forget()
            return refused(answer, f"reading {target}")
        if workload_of(answer.body) != workload:
            self.forget()
            return Rejected("conflict", f"{target} does not run workload {workload!r} any more; decide again")
        if target.kind == "TrainJob" and "numNodes" not in (answer.body["spec"].get("trainer") or {}):
            return Rejected(
                "unsupported", f"only its runtime knows how many nodes {target} has; set its spec.trainer.numNodes"
            )
        return target, answer.body

    def read(self, target: Target) -> Object | Rejected:
        """Read an object; ``Rejected`` if it does not exist."""
        answer = read_object(self._api, target)
        return dict(answer.body) if answer.ok else refused(answer, f"reading {target}")

    def forget(self) -> None:
        """List again before the next answer."""
        with self._lock:
            self._known = {}

    def _list(self) -> Rejected | None:
        known: dict[str, list[Target]] = {}
        wrong: dict[str, str] = {}
        for namespace in self._namespaces:
            for kind in self._kinds:
                answer = self._api.listed(kind.path(namespace), (), METADATA)
                if answer.status == 404:  # this cluster does not have the kind
                    continue
                if not answer.ok:
                    return refused(answer, f"listing the {kind.resource} of namespace {namespace}")
                for obj in answer.body:
                    if owner_of(obj).get("kind") in BY_NAME:  # its owner is found, too
                        continue
                    target = Target(kind.name, namespace, obj["metadata"]["name"])
                    known.setdefault(workload_of(obj), []).append(target)
                    if problem := foreign(annotation := annotation_of(obj, ANNOTATION), namespace):
                        wrong[annotation] = f"{target}: {problem}"
        self._known = {workload: tuple(targets) for workload, targets in known.items()}
        self._foreign = wrong
        self._listed_s = time.monotonic()
        return None


def read_object(api: Api, target: Target) -> Answer:
    """Read an object and, if there is one, the Deployment of its own that runs its replicas."""
    answer = api.get(target.path)
    if not answer.ok or not target.controller.behind:
        return answer
    behind = api.get(BY_NAME["Deployment"].path(target.namespace, f"{target.name}{target.controller.behind}"))
    if not behind.ok and behind.status != 404:
        return behind
    if not behind.ok or owner_of(behind.body).get("uid") != answer.body["metadata"]["uid"]:
        return answer
    return answer._replace(body={**answer.body, BEHIND: behind.body})


def lost(answer: Answer, target: Target, uid: str) -> Failed | None:
    """Why an operation on the object with this uid cannot be followed, judged by the answer to a read of the object.

    Raises :class:`PlatformError` if the object may not be read now: an API server that has just started forbids
    everything.
    """
    if answer.status == 404 or (answer.ok and answer.body["metadata"]["uid"] != uid):
        return Failed(f"{target} is gone; it was deleted after the decision was submitted")
    if not answer.ok:
        raise PlatformError(refused(answer, f"reading {target}").detail)
    return None


def unless_forbidden(found: T | Rejected) -> T | Rejected:
    """Return ``found`` as it is; raise :class:`PlatformError` if it may not be read now, as in :func:`lost`."""
    if isinstance(found, Rejected) and found.code == "platform":
        raise PlatformError(found.detail)
    return found


def version_of(obj: Object) -> str:
    """Uid and generation of an object; for Volcano also whether it is aborted, which is not in the specification."""
    phase = phase_of(obj) if _of_volcano(obj) else ""
    stopped = f"/{phase}" if phase.startswith("Abort") else ""
    return f"{obj['metadata']['uid']}/{obj['metadata'].get('generation', 0)}{stopped}"


def _of_volcano(obj: Object) -> bool:
    return str(obj.get("apiVersion", "")).startswith(VOLCANO)


def named(obj: Object) -> str:
    """Workload that an object's annotation names; empty without one, or if objects of its namespace may not have it."""
    name = annotation_of(obj, ANNOTATION)
    return "" if foreign(name, obj["metadata"]["namespace"]) else name


def workload_of(obj: Object) -> str:
    """Workload of an object: the one that it names, else ``namespace/name``, as agents name its pods."""
    return named(obj) or f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"
