"""What the offers of a cell mean for a workload: what it holds of each, what each costs now, and what it sustains."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from flyball_contracts.codec import BINDINGS
from flyball_contracts.config import Offer
from flyball_contracts.records import Evidence, Inventory, Signal, WorkloadSpec
from flyball_contracts.records.signals import SignalKind
from flyball_models.capacity import gpus
from flyball_models.rightsizing import mig
from flyball_streams.engine.known import Known, Replica
from flyball_streams.engine.workload.capacity.capacities import requests_on

UNITS: Mapping[SignalKind, str] = {"spot_price": "USD/h", "spot_risk": "1/h", "carbon_intensity": "g/kWh"}
Kind = tuple[str, str]
"""GPU model and MIG profile, empty for the whole."""


class Held(NamedTuple):
    """Replicas of a workload on each offer, and on machines that none describes."""

    counts: Mapping[str, int]
    other: int

    @property
    def replicas(self) -> int:
        """All of them."""
        return sum(self.counts.values()) + self.other


class Quote(NamedTuple):
    """What a machine of an offer costs and how likely it is lost, now; ``None``: nobody knows. And what that rests on.

    ``carbon_g_per_kwh`` is ``None`` where no signal has it.
    """

    usd_per_hour: float | None
    loss_per_hour: float | None
    carbon_g_per_kwh: float | None
    evidence: tuple[Evidence, ...]


class Book:
    """The offers of one cell."""

    def __init__(self, cell: str, offers: Sequence[Offer], directory: Known) -> None:
        self.cell = cell
        self.offers = {offer.name: offer for offer in offers if not offer.cells or cell in offer.cells}
        self.directory = directory
        self._version = -1
        self._held: dict[str, Held] = {}
        self._taken: dict[str, float] | None = None

    def held(self, workload: str) -> Held:
        """What runs of a workload, by the inventories; a replica counts where its first part is."""
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
            found = self._held[workload] = Held(counts, other)
        return found

    def most(self, spec: WorkloadSpec, offer: Offer, promised: float) -> int:
        """Replicas of a workload that an offer has room for, beside what others hold; ``promised`` are others' GPUs."""
        here = self.held(spec.workload).counts[offer.name] * spec.gpus_per_replica
        left = offer.at_most * offer.gpus - max(0.0, self._gpus()[offer.name] - here) - promised
        by_machine = offer.at_most * part_of(spec, offer).replicas_per_machine
        return max(0, math.floor(min(by_machine, left / spec.gpus_per_replica) + 1e-9))

    def quote(self, offer: Offer, spec: WorkloadSpec, now_ns: int) -> Quote:
        """What an offer costs now."""
        evidence: list[Evidence] = []

        def latest(kind: SignalKind, zone: str) -> float | None:
            signal = self.directory.signals.get((zone, kind)) if zone else None
            value = signal.at(now_ns) if signal is not None and signal.published_ns <= now_ns else None
            if signal is None or value is None:
                return None
            evidence.append(Evidence(name=kind, value=value, unit=UNITS[kind], record=signal_id(signal)))
            return value

        usd, loss = offer.price_usd_per_hour, None
        if offer.market == "spot":
            zone = offer.signals or offer.zone
            price, risk = latest("spot_price", zone), latest("spot_risk", zone)
            usd, loss = usd if price is None else price, offer.loss_per_hour if risk is None else risk
        carbon = latest("carbon_intensity", offer.zone or self.directory.zone_of(spec.workload, self.cell))
        return Quote(usd, loss if offer.market == "spot" else 0.0, carbon, tuple(evidence))

    def speeds(self, spec: WorkloadSpec) -> dict[str, float]:
        """Work of a replica on each offer that the workload accepts and that is known to serve it, in a common unit.

        By the architecture where the owner tells it, else by what the offers say, else 1 for the kind of GPU that it
        runs on, or would if all are alike.
        """
        accepted = {n: o for n, o in self.offers.items() if not spec.gpu_models or o.gpu_model in spec.gpu_models}
        if spec.model is not None:
            found = {n: sustained(spec, (o.gpu_model, o.gpu_profile)) for n, o in accepted.items()}
            return {name: speed for name, speed in found.items() if speed > 0}
        declared = {name: o.speed for name, o in accepted.items() if o.speed is not None}
        held = self.held(spec.workload).counts
        if declared and all(name in declared for name, n in held.items() if n and name in accepted):
            return declared
        kinds = {(o.gpu_model, o.gpu_profile) for name, o in accepted.items() if held[name]}
        kinds = kinds or {(o.gpu_model, o.gpu_profile) for o in accepted.values()}
        return {n: 1.0 for n, o in accepted.items() if {(o.gpu_model, o.gpu_profile)} == kinds}

    def _gpus(self) -> dict[str, float]:
        """GPUs, or instances, of each offer that are held by the cell's workloads."""
        self._renew()
        if self._taken is None:
            self._taken = dict.fromkeys(self.offers, 0.0)
            for spec in self.directory.workloads(self.cell):
                for replica in self.directory.replicas(spec.workload):
                    name = self._offer_of(replica)
                    if name is not None:
                        self._taken[name] += len(replica.devices)
        return self._taken

    def _offer_of(self, replica: Replica) -> str | None:
        inventory = self.directory.inventories[replica.node]
        if inventory.cell != self.cell or not replica.devices:
            return None
        kind = kind_of(inventory, replica.devices[0])
        return next((name for name, offer in self.offers.items() if _is_of(offer, inventory, kind)), None)

    def _renew(self) -> None:
        if self._version != self.directory.version:
            self._version, self._held, self._taken = self.directory.version, {}, None


class PartOf(NamedTuple):
    """Machines that a replica takes, a part of one or several, and replicas that a machine has room for."""

    machines: float
    replicas_per_machine: float


def part_of(spec: WorkloadSpec, offer: Offer) -> PartOf:
    """What a replica of a workload takes of an offer's machines."""
    each = spec.gpus_per_replica
    if each <= offer.gpus:
        return PartOf(each / offer.gpus, math.floor(offer.gpus / each + 1e-9))
    machines = math.ceil(each / offer.gpus - 1e-9)
    return PartOf(machines, 1.0 / machines)


def kind_of(inventory: Inventory, row: int) -> Kind:
    """GPU model and profile of a device; an instance is of its parent's model."""
    device = inventory.devices[row]
    parent = next((d for d in inventory.devices if d.id == device.parent), device) if device.parent else device
    return parent.model, (device.mig_profile or "").removeprefix("MIG ")


def sustained(spec: WorkloadSpec, kind: Kind) -> float:
    """Requests per second that the architecture lets a replica sustain on a kind of GPU; 0: none, or not known."""
    chip = gpus.find(kind[0])
    if chip is None or spec.model is None:
        return 0.0
    if kind[1]:
        part = next((p for p in mig.profiles(kind[0], chip.memory_bytes) if p.name == kind[1]), None)
        if part is None:
            return 0.0
        share, memory = part.share, part.memory_bytes / chip.memory_bytes
        flops_16, flops_8, bandwidth = chip.flops_16 * share, chip.flops_8 * share, chip.bandwidth_bytes_per_s * memory
        chip = gpus.Gpu(chip.name, flops_16, flops_8, bandwidth, part.memory_bytes)
    return requests_on(spec, spec.model, chip)


def signal_id(signal: Signal) -> str:
    """Id under which a signal travels."""
    return BINDINGS[Signal].identity(signal)


def _first_parts(replicas: Sequence[Replica]) -> list[Replica]:
    seen: dict[str, Replica] = {}
    for replica in replicas:
        seen.setdefault(replica.name, replica)
    return list(seen.values())


def _is_of(offer: Offer, node: Inventory, kind: Kind) -> bool:
    market = "reserved" if node.capacity_type == "owned" else node.capacity_type
    return (
        (offer.gpu_model, offer.gpu_profile) == kind
        and offer.market == market
        and offer.instance_type in ("", node.instance_type)
        and offer.zone in ("", node.zone, node.availability_zone)
    )
