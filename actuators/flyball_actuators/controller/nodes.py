"""Converts a Kubernetes node to an inventory."""

import re
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from flyball_actuators.platforms.kubernetes.kinds import Object, status_of
from flyball_actuators.platforms.kubernetes.quantity import amount
from flyball_contracts.nodes.kubernetes import GPU, KubernetesNode, Taint
from flyball_contracts.records import Device, Inventory
from flyball_contracts.records.inventory import CapacityType

MIG = "nvidia.com/mig-"
SHARING = "nvidia.com/gpu.sharing-strategy"
GRID_ZONE = "flyball.dev/zone"
RACK = "flyball.dev/rack"
LEAVES = ("flyball.dev/leaf", "network.topology.nvidia.com/leaf", "topology.k8s.aws/network-node-layer-3")
"""Labels of a leaf switch: Flyball's own, NVIDIA Topograph's, and the EC2 network layer nearest to the instance."""
_MIB = 1 << 20
_SLICES = 7
_QUARTERS = {"1g.6gb", "2g.12gb", "4g.24gb"}  # of a GPU that has four slices
_PROFILE = re.compile(r"MIG-(\dg\.\d+gb)")
_PROVIDERS = {"gce": "gcp"}
_SPOT = (
    ("karpenter.sh/capacity-type", "spot"),
    ("eks.amazonaws.com/capacityType", "SPOT"),
    ("cloud.google.com/gke-spot", "true"),
    ("cloud.google.com/gke-preemptible", "true"),
    ("kubernetes.azure.com/scalesetpriority", "spot"),
)
_ON_DEMAND = (
    ("karpenter.sh/capacity-type", "on-demand"),
    ("eks.amazonaws.com/capacityType", "ON_DEMAND"),
    ("kubernetes.azure.com/scalesetpriority", "regular"),
)
_RESERVED = (("karpenter.sh/capacity-type", "reserved"), ("eks.amazonaws.com/capacityType", "CAPACITY_BLOCK"))


class Node(NamedTuple):
    """A node: its inventory without allocations, and the taints that reserve it for some pods."""

    inventory: Inventory
    reserved: tuple[Taint, ...]


def node_of(node: Object, cell: str) -> Node:
    """Everything the API server knows of a node except its pods; epoch and time are 0.

    GPUs come from the node's capacity, their model from the labels of GPU feature discovery. A GPU that the device
    plugin withholds (capacity above allocatable) is unschedulable; which one is unknown, so the last ones are marked.
    """
    metadata, status = node["metadata"], status_of(node)
    spec: Object = node.get("spec") or {}
    info: Object = status.get("nodeInfo") or {}
    shown = msgspec.convert(node, KubernetesNode)
    labels: dict[str, str] = metadata.get("labels") or {}
    capacity: dict[str, str] = status.get("capacity") or {}
    memory = amount(capacity.get("memory"))
    cpu = amount(capacity.get("cpu"))
    name = metadata["name"]
    scheme = str(spec.get("providerID", "")).partition("://")[0]
    inventory = Inventory(
        node=name,
        cell=cell,
        epoch=0,
        time_ns=0,
        boot_id=info.get("bootID", ""),
        devices=devices_of(name, labels, capacity, status.get("allocatable") or capacity),
        provider=_PROVIDERS.get(scheme, scheme),
        region=labels.get("topology.kubernetes.io/region", ""),
        availability_zone=labels.get("topology.kubernetes.io/zone", ""),
        zone=labels.get(GRID_ZONE, ""),
        instance_type=labels.get("node.kubernetes.io/instance-type", ""),
        capacity_type=_capacity_type(labels),
        cpu_count=None if cpu is None else int(cpu),
        memory_bytes=None if memory is None else int(memory),
        driver_version=_driver(labels),
        schedulable=shown.takes_pods,
        cordon=shown.cordon,
        rack=labels.get(RACK, ""),
        leaf=next((labels[key] for key in LEAVES if labels.get(key)), ""),
    )
    return Node(inventory, shown.reserved)


def devices_of(
    node: str, labels: Mapping[str, str], capacity: Mapping[str, str], allocatable: Mapping[str, str]
) -> tuple[Device, ...]:
    """GPUs and MIG instances of a node: whole GPUs, then divided GPUs, then the instances.

    The API server does not know which GPU an instance is on: each instance is put on the first GPU with room. With
    time-sharing or MPS, GPUs are shared: capacity is a multiple of them, and ``nvidia.com/gpu.count`` is the true
    number.
    """
    model = labels.get("nvidia.com/gpu.product", "")
    memory_bytes = _count(labels, "nvidia.com/gpu.memory") * _MIB
    count = _count(labels, "nvidia.com/gpu.count")
    shown = _whole(capacity.get(GPU))
    open_ = {key: _whole(allocatable.get(key)) for key in capacity}
    instances = {key.removeprefix(MIG): _whole(value) for key, value in sorted(capacity.items()) if key.startswith(MIG)}
    single = _PROFILE.search(model)
    if single is not None:  # strategy "single": every GPU is divided alike, and its parts are called GPUs
        model = model[: single.start()].rstrip("-")
        instances, shown = {single.group(1): shown}, 0
        open_[MIG + single.group(1)] = open_.get(GPU, 0)
    divided = _divided(instances)
    if count and not single:
        shown = min(shown, count) if not instances else shown
        divided = max(divided, count - shown) if instances else divided
    shared = labels.get(SHARING, "none") != "none" or (0 < count < _whole(capacity.get(GPU)) and not instances)
    free = min(open_.get(GPU, 0), shown)
    architecture = labels.get("nvidia.com/gpu.family", "")
    product = Device(id="", model=model or "GPU", memory_bytes=memory_bytes, architecture=architecture)

    def gpu(index: int, **changes: bool) -> Device:
        return msgspec.structs.replace(product, id=f"{node}/gpu-{index}", index=index, **changes)

    whole = [gpu(i, schedulable=i < free, shared=shared) for i in range(shown)]
    parents = [gpu(shown + i, mig_enabled=True) for i in range(divided)]
    room = [1.0] * divided
    parts: list[Device] = []
    for profile in sorted(instances, key=lambda one: (-share_of(one), one)):
        for i in range(instances[profile]):
            size = share_of(profile)
            home = next((p for p in range(divided) if room[p] >= size - 1e-9), divided - 1)
            room[home] -= size
            parts.append(
                msgspec.structs.replace(
                    product,
                    id=f"{node}/mig-{profile}-{i}",
                    index=i,
                    memory_bytes=_memory_of(profile),
                    parent=parents[home].id,
                    mig_profile=profile,
                    schedulable=i < open_.get(MIG + profile, 0),
                )
            )
    return (*whole, *parents, *parts)


def share_of(profile: str) -> float:
    """Share of a GPU that a MIG profile takes: ``1g.10gb`` is a seventh; profiles of 24-GB GPUs count in quarters."""
    found = re.match(r"(\d+)g\.", profile)
    slices = int(found.group(1)) if found else 1
    return min(1.0, slices / (4 if profile in _QUARTERS else _SLICES))


def _divided(instances: Mapping[str, int]) -> int:
    """Number of GPUs that the instances need, largest first."""
    room: list[float] = []
    for profile in sorted(instances, key=lambda one: (-share_of(one), one)):
        size = share_of(profile)
        for _ in range(instances[profile]):
            home = next((i for i, left in enumerate(room) if left >= size - 1e-9), None)
            if home is None:
                room.append(1.0)
                home = len(room) - 1
            room[home] -= size
    return len(room)


def _memory_of(profile: str) -> int:
    found = re.search(r"(\d+)gb", profile)
    return (int(found.group(1)) << 30) if found else 0


def _whole(text: str | None) -> int:
    return int(amount(text) or 0)


def _count(labels: Mapping[str, str], key: str) -> int:
    text = labels.get(key, "")
    return int(text) if text.isdigit() else 0


def _capacity_type(labels: Mapping[str, str]) -> CapacityType:
    if any(labels.get(key) == value for key, value in _SPOT):
        return "spot"
    if any(labels.get(key) == value for key, value in _RESERVED):
        return "reserved"
    return "on_demand" if any(labels.get(key) == value for key, value in _ON_DEMAND) else "owned"


def _driver(labels: Mapping[str, str]) -> str:
    full = labels.get("nvidia.com/cuda.driver-version.full", "")
    parts = [labels.get(f"nvidia.com/cuda.driver.{part}", "") for part in ("major", "minor", "rev")]
    return full or ".".join(part for part in parts if part)
