"""Tables of a fleet with derived indexes: running replicas, the GPUs they hold, and grid zones."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from flyball_contracts.records import Inventory, WorkloadSpec
from flyball_contracts.tables import Row, Tables


class Replica(NamedTuple):
    """One running replica, or its part on one node; ``devices`` are the existing rows of that node that it holds."""

    workload: str
    name: str
    node: str
    devices: tuple[int, ...]


class Held(NamedTuple):
    """Resources of a workload: replicas (one that spans nodes counts once) and GPUs by model."""

    replicas: int
    gpus: Mapping[str, float]


class FleetIndex:
    """Tables with derived indexes: replicas by workload, the GPUs they hold, and zones.

    ``version`` rises whenever a table changes.
    """

    def __init__(self) -> None:
        self._clear(Tables())

    def _clear(self, tables: Tables) -> None:
        self.tables = tables
        self.inventories = self.tables.inventories
        self.specs = self.tables.workloads
        self.pools = self.tables.pools
        self.signals = self.tables.signals
        self.version = 0
        self._homes: dict[str, set[str]] = {}
        self._zones: dict[str, Counter[str]] = {}
        self._zone_of: dict[tuple[str, str], str] = {}
        self._replicas: dict[str, list[Replica]] = {}
        self._parts: dict[str, dict[str, list[Replica]]] = {}
        self._held: dict[str, Held] = {}
        self._cells: dict[str, tuple[int, list[Inventory], list[WorkloadSpec]]] = {}

    def spec(self, workload: str) -> WorkloadSpec | None:
        """Specification of a workload, or ``None`` when there is none or it was removed."""
        return self.tables.spec(workload)

    def kinds_of_work(self, workloads: Iterable[str]) -> str:
        """Kinds of work of some workloads, each once, as far as they are known."""
        specs = [self.spec(workload) for workload in workloads]
        return " ".join(sorted({spec.kind for spec in specs if spec is not None}))

    def workloads(self, cell: str) -> list[WorkloadSpec]:
        """Specifications of a cell, by name."""
        return self._of(cell)[2]

    def nodes(self, cell: str) -> list[Inventory]:
        """Inventory of each node of a cell, by name."""
        return self._of(cell)[1]

    def replicas(self, workload: str) -> list[Replica]:
        """Running replicas of a workload, by name, over all nodes; a gang's replica may be on several."""
        found = self._replicas.get(workload)
        if found is None:
            found = [
                Replica(a.workload, a.replica, node, tuple(row for row in a.devices if 0 <= row < rows))
                for node in sorted(self._homes.get(workload, ()))
                for rows in (len(self.inventories[node].devices),)
                for a in self.inventories[node].allocations
                if a.workload == workload
            ]
            found.sort(key=lambda r: (r.name, r.node))
            self._replicas[workload] = found
        return found

    def parts(self, workload: str, replica: str) -> list[Replica]:
        """Parts of one replica of a workload, by node."""
        found = self._parts.get(workload)
        if found is None:
            found = self._parts[workload] = {}
            for one in self.replicas(workload):
                found.setdefault(one.name, []).append(one)
        return found.get(replica, [])

    def staying(self, workload: str, node: str) -> list[Replica]:
        """Replicas of a workload on a node, without those that have all their GPUs elsewhere by now.

        The inventory of a silent node is the last that it sent, and still lists replicas that were moved off it since.
        So of two nodes that list a replica, it is on the one with the newer inventory.
        """
        spec = self.spec(workload)
        gpus = max(1.0, spec.gpus_per_replica) if spec is not None else 1.0
        here = [replica for replica in self.replicas(workload) if replica.node == node]

        def elsewhere(part: Replica) -> bool:
            return part.node != node and self.inventories[part.node].time_ns >= self.inventories[node].time_ns

        return [r for r in here if sum(len(p.devices) for p in self.parts(workload, r.name) if elsewhere(p)) < gpus]

    def held(self, workload: str) -> Held:
        """Replicas and GPUs that a workload holds."""
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
        found = self._zone_of.get((workload, cell))
        if found is None:
            homes = (self.inventories[node] for node in self._homes.get(workload, ()))
            counts = Counter(home.zone for home in homes if home.cell == cell and home.zone)
            counts = counts or self._zones.get(cell, counts)
            found = min(counts, key=lambda zone: (-counts[zone], zone)) if counts else ""
            self._zone_of[workload, cell] = found
        return found

    def _fold(self, row: Row) -> bool:
        before = self.inventories.get(row.node) if isinstance(row, Inventory) else None
        changed = self.tables.apply(row)
        if changed and isinstance(row, Inventory):
            self._index(before, row)
        self.version += changed
        return changed

    def _drop(self, topic: str, key: str) -> None:
        before = self.inventories.get(key)
        if self.tables.forget(topic, key):
            if before is not None and key not in self.inventories:
                self._index(before, None)
            self.version += 1

    def _index(self, before: Inventory | None, after: Inventory | None) -> None:
        self._zone_of.clear()
        for inventory, step in ((before, -1), (after, 1)):
            if inventory is None:
                continue
            if inventory.zone:
                zones = self._zones.setdefault(inventory.cell, Counter())
                zones[inventory.zone] += step
                if not zones[inventory.zone]:
                    del zones[inventory.zone]
            for workload in {a.workload for a in inventory.allocations}:
                homes = self._homes.setdefault(workload, set())
                (homes.add if step > 0 else homes.discard)(inventory.node)
                self._replicas.pop(workload, None)
                self._parts.pop(workload, None)
                self._held.pop(workload, None)
                if not homes:
                    del self._homes[workload]

    def _of(self, cell: str) -> tuple[int, list[Inventory], list[WorkloadSpec]]:
        known = self._cells.get(cell)
        if known is None or known[0] != self.version:
            nodes = sorted((i for i in self.inventories.values() if i.cell == cell), key=lambda i: i.node)
            specs = sorted(
                (s for s in self.specs.values() if s.cell == cell and not s.removed), key=lambda s: s.workload
            )
            known = self._cells[cell] = self.version, nodes, specs
        return known
