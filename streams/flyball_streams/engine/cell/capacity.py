"""Where there is room in a cell, and what a GPU costs there."""

from typing import NamedTuple

from flyball_contracts.records import Inventory, WorkloadSpec
from flyball_streams.engine.directory import Directory


class Room(NamedTuple):
    """Free healthy devices of one node."""

    node: str
    model: str
    zone: str
    devices: tuple[str, ...]


def free_rooms(directory: Directory, cell: str, unhealthy: set[str]) -> list[Room]:
    """Schedulable nodes with free healthy devices, by name."""
    rooms: list[Room] = []
    for inventory in directory.nodes(cell):
        if not inventory.schedulable:
            continue
        held = {row for a in inventory.allocations for row in a.devices}
        free = tuple(d.id for row, d in enumerate(inventory.devices) if row not in held and d.id not in unhealthy)
        if free:
            rooms.append(Room(inventory.node, inventory.devices[0].model, inventory.zone, free))
    return rooms


def fits(room: Room, spec: WorkloadSpec) -> bool:
    """Whether a node's GPU model is one that the workload accepts."""
    return not spec.gpu_models or room.model in spec.gpu_models


def gpu_price(nodes: list[Inventory]) -> float | None:
    """Mean price of one GPU in USD per hour over the nodes whose price is known."""
    priced = [(n.price_usd_per_hour, len(n.devices)) for n in nodes if n.devices]
    known = [(price, devices) for price, devices in priced if price is not None]
    gpus = sum(devices for _, devices in known)
    return sum(price for price, _ in known) / gpus if gpus else None


def best_room(rooms: list[Room], spec: WorkloadSpec, devices: int, away_from: str) -> Room | None:
    """Node to move ``devices`` devices to: same zone first, then the fullest that fits (best fit), then by name."""
    home = next((r.zone for r in rooms if r.node == away_from), "")
    candidates = [r for r in rooms if r.node != away_from and len(r.devices) >= devices and fits(r, spec)]
    return min(candidates, key=lambda r: (r.zone != home, len(r.devices), r.node), default=None)
