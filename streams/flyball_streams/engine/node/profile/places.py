"""The node row, replica row and price of each device, as index arrays."""

import re
from collections.abc import Mapping
from math import ceil
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flyball_contracts.metrics import HOST, WORKLOAD
from flyball_contracts.records import Device, Inventory
from flyball_models.profile.signals import Reading
from flyball_models.rightsizing.mig import COMPUTE_SLICES
from flyball_streams.engine.fleet_index import FleetIndex
from flyball_streams.engine.node.table import SubjectTable
from flyball_streams.engine.node.tenancy import Tenancy

_NO_HOST = np.full((1, len(HOST)), np.nan, np.float32)
_NO_PAGE = np.full((1, len(WORKLOAD)), np.nan, np.float32)
_HOUR_S = 3_600.0
FEW = 0.1
"""Share of the GPUs that workloads may hold below which replicas of a size are too few to use fragments."""
_COMPUTE = re.compile(r"(\d+)g\.")


class Node(NamedTuple):
    """A node with free GPUs: the free and the held whole GPUs, and the price of one per second, NaN if unknown."""

    name: str
    free: int
    held: int
    usd_per_gpu_s: float


class Places:
    """Arrays by device slot [N], for one tenancy; a row of -1 means no node or no replica.

    ``gang`` is the number of GPUs of the whole workload: those seen here, or those of a gang by its specification.
    ``declared`` is the kind in the specification as an index into :data:`DECLARED`, -1 without one. ``jobs`` marks
    devices of jobs, which end. ``share`` is the part of a whole GPU that a device is: less than 1 for a MIG instance.
    """

    def __init__(self, tenancy: Tenancy, inventories: dict[str, Inventory], gpus: SubjectTable) -> None:
        n = gpus.capacity
        self.tenancy = tenancy
        self.version = -1
        self.hosts: NDArray[np.int64] = np.full(n, -1, np.int64)
        self.replica = np.full(n, -1, np.int64)
        self.memory_bytes, self.on_node = np.full((2, n), np.nan, np.float32)
        self.usd_per_s, self.share = np.full(n, np.nan), np.ones(n)
        self.gang = np.full(n, np.nan, np.float32)
        self.declared = np.full(n, -1, np.int64)
        self.jobs = np.zeros(n, bool)
        self.nodes: list[Node] = []
        self._node_of: list[tuple[str, list[int]]] = []
        for name, inventory in sorted(inventories.items()):
            self._note(name, inventory, gpus)

    def follow(self, hosts: SubjectTable, directory: FleetIndex) -> None:
        """Update the rows of nodes, and the fields from specifications."""
        for name, slots in self._node_of:
            self.hosts[slots] = hosts.slots.get(name, -1)
        if directory.version == self.version:
            return
        self.version = directory.version
        tenancy = self.tenancy
        gangs, kinds = np.full(len(tenancy.workloads) + 1, np.nan), np.full(len(tenancy.workloads) + 1, -1)
        for i, workload in enumerate(tenancy.workloads):
            spec, gangs[i] = directory.spec(workload), tenancy.devices[i]
            if spec is not None:
                kinds[i] = DECLARED.index(spec.kind)
                if spec.gang_size > 1:
                    gangs[i] = max(gangs[i], spec.gang_size * spec.gpus_per_replica)
        self.gang = gangs[tenancy.workload_of_slot].astype(np.float32)
        self.declared = kinds[tenancy.workload_of_slot]
        self.jobs = np.isin(self.declared, _JOBS)

    def reading(self, gpus: SubjectTable, hosts: SubjectTable, period_s: float) -> Reading:
        """The values of this tick for each device."""
        host = np.concatenate([hosts.values, _NO_HOST])
        page = np.concatenate([self.tenancy.values, _NO_PAGE])
        return Reading(
            gpus.values,
            host[self.hosts],
            page[self.replica],
            self.memory_bytes,
            self.on_node,
            self.gang,
            period_s,
        )

    def needed(self, cell: str, directory: FleetIndex) -> int:
        """GPUs on one node that a free fragment must have to be of use; 0 without a specification.

        It is the size of the smallest replicas of the cell's workloads, without the smallest sizes that together may
        hold less than ``FEW`` of all GPUs that the workloads may hold: a notebook does not fill the fragments of a
        fleet.
        """
        wanted: dict[int, float] = {}
        for spec in directory.workloads(cell):
            if spec.gpus_per_replica > 0 and spec.max_replicas > 0:
                size = ceil(spec.gpus_per_replica)
                wanted[size] = wanted.get(size, 0.0) + spec.gpus_per_replica * spec.max_replicas
        least, total = FEW * sum(wanted.values()), 0.0
        for size, gpus in sorted(wanted.items()):
            total += gpus
            if total >= least:
                return size
        return 0

    def _note(self, name: str, inventory: Inventory, gpus: SubjectTable) -> None:
        slots = [gpus.slots[d.id] for d in inventory.devices]
        self._node_of.append((name, slots))
        whole = [i for i, d in enumerate(inventory.devices) if d.parent is None]
        self.on_node[slots] = len(whole)
        self.memory_bytes[slots] = [d.memory_bytes or np.nan for d in inventory.devices]
        price = inventory.price_usd_per_hour
        each = price / _HOUR_S / len(whole) if price is not None and whole else np.nan
        by_id = {d.id: d for d in inventory.devices}
        self.share[slots] = [_share(d, by_id) for d in inventory.devices]
        self.usd_per_s[slots] = each * self.share[slots]
        taken: set[int] = set()
        first = self.tenancy.first_row[name]
        for i, allocation in enumerate(inventory.allocations):
            rows = [row for row in allocation.devices if 0 <= row < len(slots)]
            self.replica[[slots[row] for row in rows]] = first + i
            taken.update(rows)
        parents = {d.id: i for i, d in enumerate(inventory.devices)}
        taken |= {parents[d.parent] for i, d in enumerate(inventory.devices) if i in taken and d.parent in parents}
        free = [i for i in whole if i not in taken and inventory.devices[i].schedulable]
        if free and inventory.schedulable:
            self.nodes.append(Node(name, len(free), len(taken.intersection(whole)), each))


def _share(device: Device, devices: Mapping[str, Device]) -> float:
    """Part of its GPU that a MIG instance takes: the larger of its shares of compute slices and memory."""
    if device.parent is None:
        return 1.0
    slices = _COMPUTE.search(device.mig_profile or "")
    parent = devices.get(device.parent)
    of_memory = device.memory_bytes / parent.memory_bytes if parent is not None and parent.memory_bytes else 0.0
    return min(1.0, max(int(slices[1]) / COMPUTE_SLICES if slices else 0.0, of_memory) or 1.0)


DECLARED = ("inference", "training", "notebook", "batch")
_JOBS = [DECLARED.index("training"), DECLARED.index("batch")]
