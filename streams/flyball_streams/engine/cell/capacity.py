"""Where there is room in a cell, for which GPU models, and what a GPU costs there."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple, TypeAlias

from flyball_contracts.records import Inventory, WorkloadSpec
from flyball_streams.engine.directory import Directory, Replica

MOST = 2.0**31
"""Replicas; more are asked for only where one takes hardly any of a GPU."""
MOST_NOTED = 10_000
"""Answers that are kept while the directory does not change."""
SLACK = 1e-9
"""GPUs that rounding may cost."""


Part: TypeAlias = tuple[tuple[str, ...], Mapping[str, float]]
"""Names of replicas that stop together, and the GPUs by model that this frees."""


class Room(NamedTuple):
    """Free healthy devices of one model on one node."""

    node: str
    model: str
    zone: str
    devices: int


class Capacity:
    """What is free in a cell at one tick: by node in ``rooms``, and by model, less what is promised, in ``free``.

    ``outstanding`` are GPUs that orders, by id and replicas, have not taken yet, of those that were asked about.

    Devices in ``unhealthy`` and on nodes that are drained are not free, and stopping what runs there frees nothing.
    """

    def __init__(self, directory: Directory, cell: str, unhealthy: Iterable[str]) -> None:
        self.directory = directory
        self.cell = cell
        self.unhealthy = set(unhealthy)
        self.rooms: list[Room] = []
        self.free: dict[str, float] = {}
        self.outstanding: dict[tuple[str, int], Mapping[str, float]] = {}
        self._rooms: list[Room] = []
        self._holders: Counter[tuple[str, int]] = Counter()
        self._freed: dict[tuple[str, tuple[str, ...]], Mapping[str, float]] = {}
        self._parts: dict[tuple[str, frozenset[str]], tuple[int, list[Part]]] = {}
        for inventory in directory.nodes(cell):
            for a in inventory.allocations:
                self._holders.update((inventory.node, row) for row in set(a.devices))
            free = Counter(
                device.model
                for row, device in enumerate(inventory.devices)
                if self._usable(inventory, row) and not self._holders[inventory.node, row]
            )
            self._rooms += [Room(inventory.node, model, inventory.zone, n) for model, n in sorted(free.items())]
        self._places = {(room.node, room.model): i for i, room in enumerate(self._rooms)}
        self.reset()

    def reset(self) -> None:
        """Forget all that was claimed, given and reserved."""
        if len(self.outstanding) + len(self._parts) + len(self._freed) > MOST_NOTED:
            self.outstanding, self._parts, self._freed = {}, {}, {}
        self.rooms, self.free = list(self._rooms), {}
        for room in self.rooms:
            self.give({room.model: room.devices})

    @cached_property
    def gpu_price(self) -> float | None:
        """Mean price of one GPU in USD per hour over the nodes whose price is known."""
        priced = [(n.price_usd_per_hour, len(n.devices)) for n in self.directory.nodes(self.cell) if n.devices]
        known = [(price, devices) for price, devices in priced if price is not None]
        gpus = sum(devices for _, devices in known)
        return sum(price for price, _ in known) / gpus if gpus else None

    def usable(self, spec: WorkloadSpec) -> float:
        """GPUs that a workload could take."""
        return sum(max(0.0, gpus) for model, gpus in self.free.items() if accepts(spec, model))

    def owed(self, spec: WorkloadSpec) -> float:
        """GPUs that a workload could take and that are promised to others but not there; they come first."""
        return sum(max(0.0, -gpus) for model, gpus in self.free.items() if accepts(spec, model))

    def claim(self, spec: WorkloadSpec, gpus: float) -> dict[str, float]:
        """Take GPUs that are usable, of the model with most left first; what was taken, by model."""
        taken: dict[str, float] = {}
        models = [m for m in self.free if accepts(spec, m)]
        for model in sorted(models, key=lambda m: (-self.free[m], m)):
            part = min(gpus, max(0.0, self.free[model]))
            if part > 0:
                taken[model] = part
                self.free[model] -= part
                gpus -= part
        return taken

    def promise(self, claims: Sequence[tuple[WorkloadSpec, Mapping[str, float]]]) -> None:
        """Set aside what is promised, by model.

        Where a model has less than was thought, other models that the workload accepts stand in; the rest is owed.
        """
        for _, gpus in claims:
            self.give({model: -n for model, n in gpus.items()})
        for spec, gpus in claims:
            for model, n in sorted(gpus.items()):
                owed = min(n, -self.free[model])
                if owed > 0:
                    self.give({model: sum(self.claim(spec, owed).values())})

    def give(self, gpus: Mapping[str, float]) -> None:
        """Count GPUs as free, by model; a negative number takes them, and what is not there is owed."""
        for model, n in gpus.items():
            self.free[model] = self.free.get(model, 0.0) + n

    def freed_by(self, replicas: Iterable[Replica]) -> dict[str, float]:
        """GPUs by model that are free when these replicas stop: those which nobody else shares."""
        leaving = Counter((r.node, row) for r in replicas for row in set(r.devices))
        found: dict[str, float] = {}
        for (node, row), n in leaving.items():
            inventory = self.directory.inventories[node]
            if n == self._holders[node, row] and self._usable(inventory, row):
                model = inventory.devices[row].model
                found[model] = found.get(model, 0.0) + 1.0
        return found

    def freed_by_part(self, workload: str, part: tuple[str, ...], replicas: Iterable[Replica]) -> Mapping[str, float]:
        """What :meth:`freed_by` says of the replicas named in ``part``; orders are looked at each tick."""
        found = self._freed.get((workload, part))
        if found is None:
            found = self._freed[workload, part] = self.freed_by(replicas)
        return found

    @cached_property
    def interruptible(self) -> list[WorkloadSpec]:
        """Workloads that may be stopped: least important first, then the least GPU time lost to checkpoints."""
        found = [spec for spec in self.directory.workloads(self.cell) if spec.interruptible]
        return sorted(found, key=lambda s: (s.priority, s.checkpoint_s * s.gpus_per_replica * s.gang_size, s.workload))

    def parts(self, victim: WorkloadSpec, stopping: frozenset[str]) -> tuple[int, list[Part]]:
        """Replicas of a workload that are not ``stopping``: how many, and by gangs what each of these frees."""
        found = self._parts.get((victim.workload, stopping))
        if found is None:
            replicas: dict[str, list[Replica]] = {}
            for replica in self.directory.replicas(victim.workload):
                if replica.name not in stopping:
                    replicas.setdefault(replica.name, []).append(replica)
            names, gang = list(replicas), gang_of(victim)
            groups = [tuple(names[i : i + gang]) for i in range(0, len(names), gang)]
            parts: list[Part] = [(part, self.freed_by(r for name in part for r in replicas[name])) for part in groups]
            found = self._parts[victim.workload, stopping] = len(replicas), parts
        return found

    def best_room(self, spec: WorkloadSpec, devices: int, away_from: str, zone: str) -> Room | None:
        """Room to move ``devices`` devices to: same zone first, then the fullest that fits, then by name."""
        fit = [
            r
            for r in self.rooms
            if r.node != away_from and r.devices >= devices <= self.free[r.model] and accepts(spec, r.model)
        ]
        return min(fit, key=lambda r: (r.zone != zone, r.devices, r.node, r.model), default=None)

    def reserve(self, node: str, model: str, devices: int) -> None:
        """Set devices of one node aside."""
        i = self._places.get((node, model))
        if i is not None:
            room = self.rooms[i]
            self.rooms[i] = room._replace(devices=room.devices - devices)
            self.give({model: -devices})

    def _usable(self, inventory: Inventory, row: int) -> bool:
        device = inventory.devices[row]  # nothing is placed on a GPU that is divided, but on its instances
        return inventory.schedulable and device.id not in self.unhealthy and not device.mig_enabled


def accepts(spec: WorkloadSpec, model: str) -> bool:
    """Whether a GPU model is one that the workload accepts."""
    return not spec.gpu_models or model in spec.gpu_models


def gang_of(spec: WorkloadSpec) -> int:
    """Replicas that run together or not at all."""
    return max(1, min(spec.gang_size, spec.max_replicas))


def per_replica(spec: WorkloadSpec) -> float:
    """GPUs of one replica, 0 or more."""
    return max(0.0, spec.gpus_per_replica)


def bounded(spec: WorkloadSpec, replicas: int) -> int:
    """Nearest number of replicas that the specification allows: within its limits, and in whole gangs."""
    least = max(0, spec.min_replicas)
    most = max(least, min(spec.max_replicas, 2**31 - 1))
    gang = gang_of(spec)
    wanted = -(-max(least, min(replicas, most)) // gang) * gang
    return wanted if wanted <= most else most - most % gang


def reachable(spec: WorkloadSpec, running: int, wanted: int, gpus: float) -> int:
    """Replicas up to ``wanted`` that ``gpus`` more GPUs allow, in whole gangs; ``running`` when none more."""
    each = per_replica(spec)
    if each <= 0:
        return wanted
    count = min(wanted, running + math.floor(min(max(gpus / each + SLACK, 0.0), MOST)))
    return max(running, count - count % gang_of(spec))
