"""Where there is room in a cell, for which GPU models, and what a GPU costs there."""

from collections import Counter
from typing import NamedTuple

from flyball_contracts.records import Inventory, WorkloadSpec
from flyball_streams.engine.directory import Directory, Replica


class Room(NamedTuple):
    """Free healthy devices of one node."""

    node: str
    model: str
    zone: str
    devices: tuple[str, ...]


class Free:
    """Free GPUs of a cell by model, less what is on its way to somebody."""

    def __init__(self, rooms: list[Room]) -> None:
        self.by_model: dict[str, float] = {}
        for room in rooms:
            self.give(room.model, len(room.devices))

    def usable(self, spec: WorkloadSpec) -> float:
        """GPUs that a workload could take."""
        return sum(gpus for model, gpus in self.by_model.items() if accepts(spec, model))

    def take(self, spec: WorkloadSpec, gpus: float) -> None:
        """Claim GPUs for a workload, of the models that it accepts, the one with most left first."""
        models = sorted((m for m in self.by_model if accepts(spec, m)), key=lambda m: (-self.by_model[m], m))
        for i, model in enumerate(models):
            part = gpus if i == len(models) - 1 else min(gpus, max(0.0, self.by_model[model]))
            self.by_model[model] -= part
            gpus -= part

    def give(self, model: str, gpus: float) -> None:
        """Count GPUs of a model as free."""
        self.by_model[model] = self.by_model.get(model, 0.0) + gpus


def accepts(spec: WorkloadSpec, model: str) -> bool:
    """Whether a GPU model is one that the workload accepts."""
    return not spec.gpu_models or model in spec.gpu_models


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


def model_of(directory: Directory, replica: Replica) -> str:
    """GPU model that a replica runs on; empty where it has none."""
    devices = directory.inventories[replica.node].devices
    return devices[0].model if devices else ""


def replicas_of(directory: Directory, workload: str) -> int:
    """Number of replicas that run; one that spans nodes counts once."""
    return len({r.name for r in directory.replicas(workload)})


def main_model(directory: Directory, workload: str) -> str:
    """GPU model that most replicas of a workload run on."""
    models = Counter(model_of(directory, r) for r in directory.replicas(workload))
    return min(models, key=lambda m: (-models[m], m)) if models else ""


def gpu_price(nodes: list[Inventory]) -> float | None:
    """Mean price of one GPU in USD per hour over the nodes whose price is known."""
    priced = [(n.price_usd_per_hour, len(n.devices)) for n in nodes if n.devices]
    known = [(price, devices) for price, devices in priced if price is not None]
    gpus = sum(devices for _, devices in known)
    return sum(price for price, _ in known) / gpus if gpus else None


def best_room(rooms: list[Room], spec: WorkloadSpec, devices: int, away_from: str, zone: str) -> Room | None:
    """Node to move ``devices`` devices to: same zone first, then the fullest that fits (best fit), then by name."""
    fit = [r for r in rooms if r.node != away_from and len(r.devices) >= devices and accepts(spec, r.model)]
    return min(fit, key=lambda r: (r.zone != zone, len(r.devices), r.node), default=None)
