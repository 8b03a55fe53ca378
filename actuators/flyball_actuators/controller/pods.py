"""Pods, their GPU requests, and the devices they are assigned to in the inventory."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from flyball_actuators.controller.nodes import MIG
from flyball_actuators.platforms.kubernetes.kinds import Object, owner_of, status_of
from flyball_actuators.platforms.kubernetes.quantity import amount
from flyball_actuators.platforms.kubernetes.targets import named
from flyball_contracts.nodes.kubernetes import GPU
from flyball_contracts.records import Allocation, Inventory

_ABOVE = {
    "JobSet": "jobset.sigs.k8s.io/jobset-name",
    "LeaderWorkerSet": "leaderworkerset.sigs.k8s.io/name",
    "InferenceService": "serving.kserve.io/inferenceservice",
}
_ENDED = ("Succeeded", "Failed")
OBJECT = tuple[str, str, str]
"""Kind, namespace and name."""


class Pod(NamedTuple):
    """A pod that is assigned to a node; ``requests`` are numbers of GPUs and MIG instances by resource."""

    namespace: str
    name: str
    uid: str
    node: str
    created: str
    workload: str
    owner: OBJECT
    requests: tuple[tuple[str, int], ...]


def pod_of(pod: Object) -> Pod | None:
    """A pod that holds devices of its node; ``None`` if it has no node or has ended."""
    metadata, spec = pod["metadata"], pod["spec"]
    if not spec.get("nodeName") or status_of(pod).get("phase") in _ENDED:
        return None
    return Pod(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        node=spec["nodeName"],
        created=metadata.get("creationTimestamp", ""),
        workload=named(pod),
        owner=_owner(pod),
        requests=tuple(sorted(gpu_requests_of(spec).items())),
    )


def gpu_requests_of(spec: Object) -> dict[str, int]:
    """GPUs and MIG instances that a pod's specification requests, by resource.

    Containers and sidecars add up; of the other init containers, which run one after the other, the largest counts.
    """
    stay: Counter[str] = Counter()
    most: Counter[str] = Counter()
    for container in spec.get("initContainers") or ():
        requests = _container_requests(container)
        if container.get("restartPolicy") == "Always":
            stay += requests
        else:
            most |= stay + requests
    total = stay.copy()
    for container in spec.get("containers") or ():
        total += _container_requests(container)
    return dict(total | most)


def _container_requests(container: Object) -> Counter[str]:
    resources: Object = container.get("resources") or {}
    declared: dict[str, str] = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return Counter(
        {key: int(amount(str(value)) or 0) for key, value in declared.items() if key == GPU or key.startswith(MIG)}
    )


def _owner(pod: Object) -> OBJECT:
    metadata = pod["metadata"]
    labels: dict[str, str] = metadata.get("labels") or {}
    for kind, label in _ABOVE.items():
        if label in labels:
            return kind, metadata["namespace"], labels[label]
    reference = owner_of(pod)
    kind, name = reference.get("kind", ""), reference.get("name", metadata["name"])
    if kind == "ReplicaSet":
        return "Deployment", metadata["namespace"], name.removesuffix(f"-{labels.get('pod-template-hash', '')}")
    return kind, metadata["namespace"], name


class WorkloadNames:
    """Finds pods' workloads, from the names that objects declare and the namespaces that names belong to."""

    def __init__(self, workloads: Mapping[OBJECT, str], homes: Mapping[str, str]) -> None:
        self._workloads = workloads
        self._homes = homes

    def is_declared(self, pod: Pod) -> bool:
        """Whether a pod or its controller has a declared workload."""
        return bool(pod.workload) or pod.owner in self._workloads

    def of(self, pod: Pod) -> str:
        """Workload of a pod: its own annotation, else its controller's, else the controller's name.

        An annotation does not count if the name in it belongs to another namespace than the pod's.
        """
        claimed = pod.workload if self._homes.get(pod.workload, pod.namespace) == pod.namespace else ""
        return claimed or self._workloads.get(pod.owner) or f"{pod.namespace}/{pod.owner[2]}"


def allocations_of(
    node: Inventory, pods: Iterable[tuple[Pod, str]], before: Sequence[Allocation]
) -> tuple[Allocation, ...]:
    """Pods of a node with their devices, ordered by workload and replica.

    The API server knows how many devices a pod has, not which. A pod keeps the devices of ``before`` while they exist;
    new pods get the devices with the fewest users, the oldest pod first.
    """
    rows: dict[str, list[int]] = {GPU: []}
    for row, device in enumerate(node.devices):
        if device.mig_profile is not None:
            rows.setdefault(MIG + device.mig_profile, []).append(row)
        elif not device.mig_enabled:
            rows[GPU].append(row)
    if not rows[GPU]:  # strategy "single"
        rows[GPU] = [row for row, device in enumerate(node.devices) if device.mig_profile is not None]
    kept = {one.labels.get("uid", ""): one.devices for one in before}
    users: Counter[int] = Counter()
    held: dict[str, tuple[int, ...]] = {}
    fresh: list[tuple[Pod, str]] = []
    ordered = sorted(pods, key=lambda one: (one[0].created, one[0].namespace, one[0].name))
    for pod, workload in ordered:
        had = kept.get(pod.uid)
        if had is not None and _fits(had, pod.requests, rows):
            held[pod.uid] = had
            users.update(had)
        else:
            fresh.append((pod, workload))
    for pod, _ in fresh:
        got: list[int] = []
        for resource, count in pod.requests:
            free = sorted(rows.get(resource, ()), key=lambda row: (users[row], not node.devices[row].schedulable, row))
            got += free[:count]
            users.update(free[:count])
        held[pod.uid] = tuple(sorted(got))
    found = (
        Allocation(
            workload=workload,
            replica=pod.name,
            devices=held[pod.uid],
            runtime="kubernetes",
            labels={"namespace": pod.namespace, "pod": pod.name, "uid": pod.uid},
        )
        for pod, workload in ordered
    )
    return tuple(sorted(found, key=lambda one: (one.workload, one.replica)))


def _fits(devices: Sequence[int], requests: Iterable[tuple[str, int]], rows: Mapping[str, Sequence[int]]) -> bool:
    left = set(devices)
    for resource, count in requests:
        mine = left.intersection(rows.get(resource, ()))
        if len(mine) != min(count, len(rows.get(resource, ()))):
            return False
        left -= mine
    return not left
