"""The faulty devices of a quarantined node, as its present inventory shows them.

The devices are given as a map of ids to PCI addresses; an empty map stands for the whole node.
"""

from collections.abc import Collection, Mapping

from flyball_contracts.records import Inventory
from flyball_streams.engine.fleet_index import FleetIndex


def address_of(device: str, inventory: Inventory | None) -> str:
    """PCI address of a whole GPU; empty if it is unknown, and for a part of one."""
    found = next((d for d in (inventory.devices if inventory is not None else ()) if d.id == device), None)
    return (found.pci_address or "") if found is not None and found.parent is None else ""


def are_present(devices: Collection[str], inventory: Inventory) -> bool:
    """Whether an inventory has all faulty devices; it lacks them while a driver loads, or where ids are unknown."""
    return {d.id for d in inventory.devices}.issuperset(devices)


def are_replaced(devices: Mapping[str, str], inventory: Inventory) -> bool:
    """Whether other GPUs are at the PCI addresses of all faulty ones; only an agent reports addresses."""
    if not devices or not {d.id for d in inventory.devices}.isdisjoint(devices):
        return False
    at = {d.pci_address for d in inventory.devices if d.pci_address and d.parent is None}
    return at.issuperset(devices.values())


def rows_of(devices: Collection[str], inventory: Inventory) -> set[int]:
    """Rows of the faulty devices; all rows of the node while one of them is unknown."""
    rows = {i for i, d in enumerate(inventory.devices) if d.id in devices}
    return rows if devices and are_present(devices, inventory) else set(range(len(inventory.devices)))


def has_replicas(devices: Collection[str], inventory: Inventory) -> bool:
    """Whether a replica runs on the faulty devices of a node."""
    rows = rows_of(devices, inventory)
    return any(rows.intersection(a.devices) for a in inventory.allocations)


def to_check(devices: Collection[str], inventory: Inventory) -> tuple[str, ...]:
    """Devices that a check uses: the faulty ones and all that are free, as a platform cannot choose among them."""
    held = {row for allocation in inventory.allocations for row in allocation.devices}
    free = {d.id for i, d in enumerate(inventory.devices) if i not in held and not d.mig_enabled}
    return tuple(sorted(free.union(devices)))


def gpus_moved(node: str, devices: Collection[str], directory: FleetIndex) -> int:
    """GPUs of all replicas that leave or restart when the node is drained, with those of their whole gangs."""
    inventory = directory.inventories.get(node)
    if inventory is None:
        return 0
    rows = rows_of(devices, inventory)
    found: set[tuple[str, int]] = set()
    for held in inventory.allocations:
        if rows.intersection(held.devices):
            spec = directory.spec(held.workload)
            gang = spec is not None and spec.is_gang
            parts = directory.replicas(held.workload) if gang else directory.parts(held.workload, held.replica)
            found.update((part.node, row) for part in parts for row in part.devices)
    return len(found)
