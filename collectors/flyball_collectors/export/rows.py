"""Names of a frame's rows and columns in exports: OpenTelemetry attributes and Prometheus labels."""

from collections import Counter
from collections.abc import Mapping

from flyball_contracts.metrics import Layout, Metric
from flyball_contracts.records import Allocation, Inventory

# What the semantic conventions call an attribute of one of their metrics; all other attributes are our own.
_CONVENTIONS: Mapping[str, Mapping[str, str]] = {
    "hw.gpu.utilization": {"task": "hw.gpu.task"},
    "hw.gpu.io": {"direction": "network.io.direction"},
    "hw.errors": {"type": "error.type"},
    "hw.energy": {"type": "hw.type"},
    "hw.temperature": {"sensor": "hw.sensor_location"},
    "hw.temperature.limit": {"limit": "hw.limit_type"},
    "hw.status": {"state": "hw.state"},
    "system.cpu.time": {"mode": "cpu.mode"},
    "system.memory.usage": {"state": "system.memory.state"},
    "system.paging.faults": {"type": "system.paging.fault.type"},
    "system.disk.io": {"direction": "disk.io.direction"},
    "system.disk.operation_time": {"direction": "disk.io.direction"},
    "system.network.io": {"direction": "network.io.direction"},
    "system.network.errors": {"direction": "network.io.direction"},
    "system.linux.psi.total_time": {"resource": "system.psi.resource", "stall": "system.psi.stall_type"},
    "container.disk.io": {"direction": "disk.io.direction"},
}
# Attribute of a row: what OpenTelemetry and what Prometheus calls it.
_NAMES: Mapping[str, tuple[str, str]] = {
    "id": ("hw.id", "hw_id"),
    "model": ("hw.model", "model"),
    "parent": ("hw.parent", "parent"),
    "serial": ("hw.serial_number", ""),
    "driver": ("hw.driver_version", ""),
    "pci_address": ("nvidia.gpu.pci.address", "pci_address"),
    "mig_profile": ("nvidia.gpu.mig.profile", "mig_profile"),
    "numa": ("flyball.numa.node", "numa_node"),
    "workload": ("flyball.workload", "workload"),
    "replica": ("flyball.replica", "replica"),
    "gateway": ("flyball.gateway", "gateway"),
    "namespace": ("k8s.namespace.name", "namespace"),
    "pod": ("k8s.pod.name", "pod"),
    "container": ("k8s.container.name", "container"),
    "job": ("slurm.job.id", "job"),
}
_OF_RUNTIME = ("namespace", "pod", "container", "job")


def column_attributes(layout: Layout, metric: Metric) -> dict[str, str]:
    """Attributes of a column by their OpenTelemetry names; includes ``hw.type`` if the conventions require it."""
    names = _CONVENTIONS.get(metric.name, {})
    found = {names.get(key, key): value for key, value in metric.attributes.items()}
    if layout.rows == "device" and metric.name.startswith("hw.") and not metric.name.startswith("hw.gpu."):
        found["hw.type"] = "gpu"
    return found


def row_attributes(layout: Layout, inventory: Inventory) -> list[dict[str, str]]:
    """Attributes of each row by their OpenTelemetry names."""
    return [{_NAMES[key][0]: value for key, value in row.items()} for row in _rows(layout, inventory)]


def row_labels(layout: Layout, inventory: Inventory) -> list[dict[str, str]]:
    """Prometheus labels of each row, with the node's."""
    return [
        {"node": inventory.node, **{_NAMES[key][1]: value for key, value in row.items() if _NAMES[key][1]}}
        for row in _rows(layout, inventory)
    ]


def sole_allocations(inventory: Inventory) -> dict[int, Allocation]:
    """Allocation of each device that has only one; a shared device has none."""
    holders = Counter(row for allocation in inventory.allocations for row in allocation.devices)
    return {row: a for a in inventory.allocations for row in a.devices if holders[row] == 1}


def of_allocation(allocation: Allocation | None) -> dict[str, str]:
    """Names of an allocation; empty for none."""
    if allocation is None:
        return {}
    labels = {key: allocation.labels[key] for key in _OF_RUNTIME if allocation.labels.get(key)}
    return {"workload": allocation.workload, "replica": allocation.replica, **labels}


def _rows(layout: Layout, inventory: Inventory) -> list[dict[str, str]]:
    match layout.rows:
        case "device":
            return _devices(inventory)
        case "allocation":
            return [of_allocation(allocation) for allocation in inventory.allocations]
        case "numa":
            return [{"numa": str(node.id)} for node in inventory.numa]
        case "gateway":
            return [{"workload": one.workload, "gateway": one.name} for one in inventory.gateways]
        case "host":
            return [{}]


def _devices(inventory: Inventory) -> list[dict[str, str]]:
    sole = sole_allocations(inventory)
    rows: list[dict[str, str]] = []
    for row, device in enumerate(inventory.devices):
        labels = {
            "id": device.id,
            "model": device.model,
            "parent": device.parent,
            "serial": device.serial,
            "driver": inventory.driver_version,
            "pci_address": device.pci_address,
            "mig_profile": device.mig_profile,
        }
        rows.append({key: value for key, value in labels.items() if value} | of_allocation(sole.get(row)))
    return rows
