"""What is known of nodes, workloads and zones: the compacted topics, folded.

Every lane consults it; none changes it. It is updated by records only, the newer record (by its own time)
winning, so the order in which partitions are read does not matter.
"""

from typing import NamedTuple

from flyball_contracts.records import Inventory, Record, Signal, WorkloadSpec

EPOCHS_KEPT = 8


class Replica(NamedTuple):
    """One running replica: where it is and which rows of that node it holds."""

    workload: str
    name: str
    node: str
    devices: tuple[int, ...]


class Directory:
    """Inventories by node (a few epochs each), specifications by workload, curves by zone."""

    def __init__(self) -> None:
        self.inventories: dict[str, Inventory] = {}
        self.specs: dict[str, WorkloadSpec] = {}
        self.signals: dict[tuple[str, str], Signal] = {}
        self.version = 0
        self._epochs: dict[str, dict[tuple[str, int], Inventory]] = {}
        self._replicas: dict[str, list[Replica]] = {}
        self._replicas_version = -1

    def apply(self, record: Record) -> bool:
        """Fold one record in; say whether it was of a kind that belongs here."""
        if isinstance(record, Inventory):
            self._apply_inventory(record)
        elif isinstance(record, WorkloadSpec):
            known = self.specs.get(record.workload)
            if known is None or record.time_ns >= known.time_ns:
                self.specs[record.workload] = record
        elif isinstance(record, Signal):
            key = (record.zone, record.kind)
            curve = self.signals.get(key)
            if curve is None or record.published_ns >= curve.published_ns:
                self.signals[key] = record
        else:
            return False
        self.version += 1
        return True

    def inventory(self, node: str, boot_id: str, epoch: int) -> Inventory | None:
        """Inventory that a frame refers to, or ``None`` while it is not known."""
        return self._epochs.get(node, {}).get((boot_id, epoch))

    def spec(self, workload: str) -> WorkloadSpec | None:
        """Specification of a workload, or ``None`` when there is none or it was removed."""
        spec = self.specs.get(workload)
        return None if spec is None or spec.removed else spec

    def workloads(self, cell: str) -> list[WorkloadSpec]:
        """Specifications of a cell, by name."""
        return [s for _, s in sorted(self.specs.items()) if s.cell == cell and not s.removed]

    def nodes(self, cell: str) -> list[Inventory]:
        """Newest inventory of each node of a cell, by name."""
        return [i for _, i in sorted(self.inventories.items()) if i.cell == cell]

    def replicas(self, workload: str) -> list[Replica]:
        """Running replicas of a workload, by name, over all nodes; a gang's replica may be on several."""
        if self._replicas_version != self.version:
            self._index_replicas()
        return self._replicas.get(workload, [])

    def zone_of(self, workload: str, cell: str) -> str:
        """Grid zone in which a workload runs, or else the zone of most nodes of its cell; empty: unknown."""
        counts: dict[str, int] = {}
        nodes = {r.node for r in self.replicas(workload)}
        for inventory in self.nodes(cell):
            if inventory.zone and (not nodes or inventory.node in nodes):
                counts[inventory.zone] = counts.get(inventory.zone, 0) + 1
        return min(counts, key=lambda zone: (-counts[zone], zone)) if counts else ""

    def records(self) -> list[Record]:
        """Everything that is known, as records: what a snapshot of the directory is."""
        epochs = [i for node in sorted(self._epochs) for i in self._epochs[node].values()]
        return [*epochs, *self.specs.values(), *self.signals.values()]

    def _apply_inventory(self, record: Inventory) -> None:
        epochs = self._epochs.setdefault(record.node, {})
        epochs[record.boot_id, record.epoch] = record
        while len(epochs) > EPOCHS_KEPT:
            del epochs[min(epochs, key=lambda e: (epochs[e].time_ns, e))]
        known = self.inventories.get(record.node)
        if known is None or (record.time_ns, record.epoch) >= (known.time_ns, known.epoch):
            self.inventories[record.node] = record

    def _index_replicas(self) -> None:
        index: dict[str, list[Replica]] = {}
        for node in sorted(self.inventories):
            for a in self.inventories[node].allocations:
                index.setdefault(a.workload, []).append(Replica(a.workload, a.replica, node, a.devices))
        for replicas in index.values():
            replicas.sort(key=lambda r: (r.name, r.node))
        self._replicas, self._replicas_version = index, self.version
