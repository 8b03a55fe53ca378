"""The offers of one cell, what its workloads hold of each, and the share of a machine that a replica takes."""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from flyball_contracts.config import Offer
from flyball_contracts.records import Inventory, WorkloadSpec
from flyball_streams.engine.fleet_index import FleetIndex, Replica

LEAST_PART = 0.01
"""Smallest share of a GPU; NVIDIA's MPS serves at most 60 clients."""
Kind = tuple[str, str]
"""GPU model and MIG profile, empty for a whole GPU."""


class HeldByOffer(NamedTuple):
    """Replicas of a workload on each offer, and on machines of no offer."""

    counts: Mapping[str, int]
    other: int

    @property
    def replicas(self) -> int:
        """All replicas."""
        return sum(self.counts.values()) + self.other


class MachineShare(NamedTuple):
    """Machines per replica (a share of one, or several), and replicas per machine."""

    machines: float
    replicas_per_machine: float


class Holdings:
    """Machines and GPUs of a cell by offer, from the inventories; computed again when the tables change."""

    def __init__(self, cell: str, offers: Sequence[Offer], directory: FleetIndex) -> None:
        self.cell = cell
        self.offers = offers_of(cell, offers)
        self.directory = directory
        self._version = -1
        self._held: dict[str, HeldByOffer] = {}
        self._gpus: dict[str, float] | None = None
        self._nodes: dict[str, list[str]] | None = None

    def held(self, workload: str) -> HeldByOffer:
        """Running replicas of a workload; a replica counts where its first part is."""
        self._renew()
        found = self._held.get(workload)
        if found is None:
            counts = dict.fromkeys(self.offers, 0)
            other = 0
            for replica in _first_parts(self.directory.replicas(workload)):
                name = self._offer_of(replica)
                if name is None:
                    other += 1
                else:
                    counts[name] += 1
            found = self._held[workload] = HeldByOffer(counts, other)
        return found

    def gpus(self) -> Mapping[str, float]:
        """GPUs or MIG instances of each offer that the cell's workloads hold."""
        self._renew()
        if self._gpus is None:
            self._gpus = dict.fromkeys(self.offers, 0.0)
            for spec in self.directory.workloads(self.cell):
                for replica in self.directory.replicas(spec.workload):
                    name = self._offer_of(replica)
                    if name is not None:
                        self._gpus[name] += len(replica.devices)
        return self._gpus

    def nodes(self, offer: str) -> Sequence[str]:
        """Nodes that are machines of an offer, by name; the first device decides."""
        self._renew()
        if self._nodes is None:
            self._nodes = {name: [] for name in self.offers}
            for node in self.directory.nodes(self.cell):
                row = next((i for i, d in enumerate(node.devices) if not d.mig_enabled), None)
                name = None if row is None else self._find(node, row)
                if name is not None:
                    self._nodes[name].append(node.node)
        return self._nodes[offer]

    def _offer_of(self, replica: Replica) -> str | None:
        inventory = self.directory.inventories[replica.node]
        if inventory.cell != self.cell or not replica.devices:
            return None
        return self._find(inventory, replica.devices[0])

    def _find(self, node: Inventory, row: int) -> str | None:
        kind = kind_of(node, row)
        return next((name for name, offer in self.offers.items() if _is_of(offer, node, kind)), None)

    def _renew(self) -> None:
        if self._version != self.directory.version:
            self._version, self._held, self._gpus, self._nodes = self.directory.version, {}, None, None


def offers_of(cell: str, offers: Sequence[Offer]) -> dict[str, Offer]:
    """Offers that a cell may use, by name."""
    return {offer.name: offer for offer in offers if not offer.cells or cell in offer.cells}


def is_chosen_for(spec: WorkloadSpec) -> bool:
    """Whether machines are chosen for a workload: it is no gang, and its replicas take GPUs or a share of one."""
    return spec.gang_size <= 1 and LEAST_PART <= spec.gpus_per_replica < math.inf


def part_of(spec: WorkloadSpec, offer: Offer) -> MachineShare:
    """The share of an offer's machines that a replica of a workload takes."""
    each = spec.gpus_per_replica
    if each <= offer.gpus:
        return MachineShare(each / offer.gpus, math.floor(offer.gpus / each + 1e-9))
    machines = math.ceil(each / offer.gpus - 1e-9)
    return MachineShare(machines, 1.0 / machines)


def is_machine_of(node: Inventory, market: str, instance_type: str, zones: Collection[str]) -> bool:
    """Whether a node is a machine of an offer or a pool; empty ``zones`` mean any, and owned counts as reserved."""
    return (
        ("reserved" if node.capacity_type == "owned" else node.capacity_type) == market
        and node.instance_type == instance_type
        and (not zones or node.zone in zones or node.availability_zone in zones)
    )


def mean_work(work: Mapping[str, float], counts: Mapping[str, int]) -> float:
    """Mean known work of the replicas that run, or the least known work if none runs."""
    known = [(n, work[name]) for name, n in counts.items() if n and name in work]
    total = sum(n for n, _ in known)
    return sum(n * each for n, each in known) / total if total else min(work.values())


def kind_of(inventory: Inventory, row: int) -> Kind:
    """GPU model and profile of a device; a MIG instance has its parent's model."""
    device = inventory.devices[row]
    parent = next((d for d in inventory.devices if d.id == device.parent), device) if device.parent else device
    return parent.model, (device.mig_profile or "").removeprefix("MIG ")


def _first_parts(replicas: Sequence[Replica]) -> list[Replica]:
    seen: dict[str, Replica] = {}
    for replica in replicas:
        seen.setdefault(replica.name, replica)
    return list(seen.values())


def _is_of(offer: Offer, node: Inventory, kind: Kind) -> bool:
    zones = (offer.zone,) if offer.zone else ()
    return (offer.gpu_model, offer.gpu_profile) == kind and is_machine_of(
        node, offer.market, offer.instance_type or node.instance_type, zones
    )
