"""What is known of nodes, workloads and zones: the compacted topics, folded.

Every lane consults it; none changes it. It is updated by records only, the newer record (by its own time)
winning, so the order in which partitions are read does not matter.
"""

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from flyball_contracts.records import Inventory, Record, Signal, WorkloadSpec

EPOCHS_KEPT = 64


class Replica(NamedTuple):
    """One running replica: where it is and which rows of that node it holds, those that do not exist left out."""

    workload: str
    name: str
    node: str
    devices: tuple[int, ...]


class Held(NamedTuple):
    """What a workload holds: replicas, one that spans nodes counted once, and GPUs by model."""

    replicas: int
    gpus: Mapping[str, float]


class Directory:
    """Inventories by node (a few epochs each), specifications by workload, curves by zone."""

    def __init__(self) -> None:
        self.inventories: dict[str, Inventory] = {}
        self.specs: dict[str, WorkloadSpec] = {}
        self.signals: dict[tuple[str, str], Signal] = {}
        self.version = 0
        self._epochs: dict[str, dict[tuple[str, int], Inventory]] = {}
        self._replicas: dict[str, list[Replica]] = {}
        self._nodes: dict[str, list[Inventory]] = {}
        self._workloads: dict[str, list[WorkloadSpec]] = {}
        self._zones: dict[tuple[str, str], str] = {}
        self._held: dict[str, Held] = {}
        self._indexed = -1

    def apply(self, record: Record) -> bool:
        """Fold one record in; say whether it was of a kind that belongs here.

        ``version`` rises only when that changes something: agents say the same again every half minute.
        """
        if isinstance(record, Inventory):
            changed = self._apply_inventory(record)
        elif isinstance(record, WorkloadSpec):
            known = self.specs.get(record.workload)
            changed = known is None or (record != known and record.time_ns >= known.time_ns)
            if changed:
                self.specs[record.workload] = record
        elif isinstance(record, Signal):
            key = (record.zone, record.kind)
            curve = self.signals.get(key)
            changed = curve is None or (record != curve and record.published_ns >= curve.published_ns)
            if changed:
                self.signals[key] = record
        else:
            return False
        self.version += changed
        return True

    def inventory(self, node: str, boot_id: str, epoch: int) -> Inventory | None:
        """Inventory that a frame refers to, or ``None`` while it is not known."""
        newest = self.inventories.get(node)
        if newest is None or (newest.epoch == epoch and newest.boot_id == boot_id):
            return newest
        return self._epochs[node].get((boot_id, epoch))

    def spec(self, workload: str) -> WorkloadSpec | None:
        """Specification of a workload, or ``None`` when there is none or it was removed."""
        spec = self.specs.get(workload)
        return None if spec is None or spec.removed else spec

    def workloads(self, cell: str) -> list[WorkloadSpec]:
        """Specifications of a cell, by name."""
        self._index()
        return self._workloads.get(cell, [])

    def nodes(self, cell: str) -> list[Inventory]:
        """Newest inventory of each node of a cell, by name."""
        self._index()
        return self._nodes.get(cell, [])

    def replicas(self, workload: str) -> list[Replica]:
        """Running replicas of a workload, by name, over all nodes; a gang's replica may be on several."""
        self._index()
        return self._replicas.get(workload, [])

    def held(self, workload: str) -> Held:
        """What a workload holds."""
        self._index()
        held = self._held.get(workload)
        if held is None:
            replicas = self.replicas(workload)
            rows = sorted({(r.node, row) for r in replicas for row in r.devices})
            models = Counter(self.inventories[node].devices[row].model for node, row in rows)
            gpus = {model: float(n) for model, n in models.items()}
            held = self._held[workload] = Held(len({r.name for r in replicas}), gpus)
        return held

    def zone_of(self, workload: str, cell: str) -> str:
        """Grid zone in which a workload runs, or else the zone of most nodes of its cell; empty: unknown."""
        self._index()
        zone = self._zones.get((workload, cell))
        if zone is None:
            counts: dict[str, int] = {}
            nodes = {r.node for r in self.replicas(workload)}
            for inventory in self.nodes(cell):
                if inventory.zone and (not nodes or inventory.node in nodes):
                    counts[inventory.zone] = counts.get(inventory.zone, 0) + 1
            zone = min(counts, key=lambda zone: (-counts[zone], zone)) if counts else ""
            self._zones[workload, cell] = zone
        return zone

    def records(self) -> list[Record]:
        """Everything that is known, as records: what a snapshot of the directory is."""
        epochs = [i for node in sorted(self._epochs) for i in self._epochs[node].values()]
        return [*epochs, *self.specs.values(), *self.signals.values()]

    def _apply_inventory(self, record: Inventory) -> bool:
        epochs = self._epochs.setdefault(record.node, {})
        same = epochs.get((record.boot_id, record.epoch))
        if same is not None and (same == record or same.time_ns > record.time_ns):
            return False
        epochs[record.boot_id, record.epoch] = record
        while len(epochs) > EPOCHS_KEPT:
            del epochs[min(epochs, key=lambda e: (epochs[e].time_ns, e))]
        known = self.inventories.get(record.node)
        if known is None or (record.time_ns, record.epoch) >= (known.time_ns, known.epoch):
            self.inventories[record.node] = record
        return True

    def _index(self) -> None:
        if self._indexed == self.version:
            return
        index: dict[str, list[Replica]] = {}
        nodes: dict[str, list[Inventory]] = {}
        for node in sorted(self.inventories):
            inventory = self.inventories[node]
            nodes.setdefault(inventory.cell, []).append(inventory)
            for a in inventory.allocations:
                rows = tuple(row for row in a.devices if 0 <= row < len(inventory.devices))
                index.setdefault(a.workload, []).append(Replica(a.workload, a.replica, node, rows))
        for replicas in index.values():
            replicas.sort(key=lambda r: (r.name, r.node))
        workloads: dict[str, list[WorkloadSpec]] = {}
        for _, spec in sorted(self.specs.items()):
            if not spec.removed:
                workloads.setdefault(spec.cell, []).append(spec)
        self._replicas, self._nodes, self._workloads = index, nodes, workloads
        self._zones, self._held, self._indexed = {}, {}, self.version
