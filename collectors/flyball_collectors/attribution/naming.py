"""Names of the workload of a pod, job or container."""

import os
import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from flyball_collectors.attribution.owner import Owner
from flyball_contracts.config.attribution import NamingRule

_SHORT = 12  # of an id of 64 digits, as container tools print it
# Kubernetes makes names unique with letters and digits that form no words, and hashes of at most ten of them.
_LETTERS = "[bcdfghjklmnpqrstvwxz2456789]"
_GENERATED = re.compile(rf"(?:-{_LETTERS}{{7,10}}|-\d{{8,10}})?-{_LETTERS}{{5}}$")
_ORDINAL = re.compile(r"-\d+$")


class Pod(NamedTuple):
    """Namespace and name of a pod."""

    namespace: str
    name: str


class Named(NamedTuple):
    """A unit with its names in records; ``labels`` are the runtime's names."""

    workload: str
    replica: str
    labels: Mapping[str, str]


def stem(pod: str) -> str:
    """Name of a pod without the suffix of its controller.

    The suffix is the hash and the five letters of a Deployment, the five of a ReplicaSet, DaemonSet or Job, with the
    time before them that a CronJob adds, or the number of a StatefulSet. The number of a pod in an indexed Job stays:
    it looks like a name that ends in a version.
    """
    for suffix in (_GENERATED, _ORDINAL):
        shorter = suffix.sub("", pod)
        if shorter != pod:
            return shorter or pod
    return pod


def name_of(owner: Owner, node: str, pod: Pod | None = None, rules: Iterable[NamingRule] = (), user: str = "") -> Named:
    """Names of a unit on a node; an unknown pod is named by its UID. ``user`` is the number of a job's user."""
    match owner.runtime:
        case "kubernetes" if pod is not None:
            labels = {"namespace": pod.namespace, "pod": pod.name, "uid": owner.unit}
            workload, replica = f"{pod.namespace}/{stem(pod.name)}", pod.name
        case "kubernetes":
            labels = {"uid": owner.unit}
            workload, replica = f"pod/{owner.unit}", owner.unit
        case "slurm":
            labels = {"job": owner.unit, **({"user": user} if user else {})}
            workload, replica = f"slurm/{owner.unit}", f"{owner.unit}.{node}"
        case "container":
            labels = {"container": owner.unit}
            workload, replica = f"container/{owner.unit[:_SHORT]}", owner.unit[:_SHORT]
        case "process":
            labels = {"unit": owner.unit}
            workload, replica = f"process/{owner.unit}", f"{owner.unit}.{node}"
    known = {"runtime": owner.runtime, **labels}
    for rule in rules:
        if not rule.is_pattern and matches(rule, known):
            return Named(rule.workload, replica, labels)
    return Named(workload, replica, labels)


def matches(rule: NamingRule, labels: Mapping[str, str]) -> bool:
    """Whether a rule names the units with these labels, ``runtime`` among them."""
    return all(label in labels and fnmatchcase(labels[label], glob) for label, glob in rule.match.items())


class PodNames:
    """Names of pods by UID, from the kubelet's log folders ``namespace_pod_uid``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[str, Pod] = {}

    def find(self, uids: Iterable[str]) -> Mapping[str, Pod]:
        """Names of the known pods; the folder is read only for new pods."""
        wanted = set(uids)
        if not wanted <= self._known.keys():
            self._known |= {uid: pod for uid, pod in self._listed() if uid in wanted}
        self._known = {uid: pod for uid, pod in self._known.items() if uid in wanted}
        return self._known

    def _listed(self) -> Iterable[tuple[str, Pod]]:
        try:
            names = os.listdir(self._folder)
        except OSError:
            return
        for name in names:
            namespace, _, rest = name.partition("_")
            pod, _, uid = rest.rpartition("_")
            if namespace and pod and uid:
                yield uid, Pod(namespace, pod)
