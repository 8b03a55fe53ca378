"""What the inventories show, with its sums; each change makes new tables, so tables once handed out never change."""

from collections.abc import Mapping, Sequence
from itertools import count

from flyball_actuators.guard import UNDECLARED, Gpu, NodeInfo, Placed, Spot, Sums, declared_of, spots_of
from flyball_contracts.records import Allocation, Device, Inventory, WorkloadSpec

_Key = tuple[str, str]


class Shown:
    """Nodes, replicas and GPUs. An inventory that repeats the one before it changes no table."""

    def __init__(self) -> None:
        self.inventories: dict[str, Inventory] = {}
        self.nodes: Mapping[str, NodeInfo] = {}
        self.gpus: Mapping[str, tuple[Gpu, ...]] = {}
        self.placed: Placed = {}
        self.sums = Sums()
        self._prices: dict[str, tuple[str, float]] = {}
        self._cheapest: Mapping[str, float] | None = None
        self._rank: dict[str, int] = {}
        self._ranks = count()
        self._parts: dict[_Key, dict[str, tuple[str, ...]]] = {}
        self._spots: dict[str, tuple[str, frozenset[Spot]]] = {}

    @property
    def usd_per_gpu_hour(self) -> Mapping[str, float]:
        """Lowest price of a GPU by cell, in USD per hour; cells without a price in any inventory are left out."""
        if self._cheapest is None:
            found: dict[str, float] = {}
            for cell, price in self._prices.values():
                found[cell] = min(price, found.get(cell, price))
            self._cheapest = found
        return self._cheapest

    def take(self, inventory: Inventory) -> None:
        """Apply a new inventory."""
        name = inventory.node
        was = self.inventories.get(name)
        self.inventories[name] = inventory
        if name not in self._rank:
            self._rank[name] = next(self._ranks)
        info = NodeInfo(inventory.cell, inventory.schedulable)
        if self.nodes.get(name) != info:
            self.nodes = {**self.nodes, name: info}
        self._price(name, inventory)
        same = was is not None and was.cell == inventory.cell and was.allocations == inventory.allocations
        if not same:
            self._place(name, was, inventory)
        if not same or was is None or was.devices != inventory.devices:
            self.gpus = {**self.gpus, name: _undivided(inventory)}
        self._offer(name)

    def forget(self, node: str) -> None:
        """Remove the inventory of a node."""
        was = self.inventories.pop(node, None)
        if was is None:
            return
        self.nodes = {name: info for name, info in self.nodes.items() if name != node}
        self.gpus = {name: gpus for name, gpus in self.gpus.items() if name != node}
        self._place(node, was, None)
        self._price(node, None)
        self._offer(node)
        del self._rank[node]

    def declare(self, workload: str, spec: WorkloadSpec | None) -> None:
        """Apply a new specification, ``None`` for the end of one."""
        now = UNDECLARED if spec is None else declared_of(spec)
        if self.sums.of(workload) == now:
            return
        keys = [(cell, workload) for cell in self.placed if workload in self.placed[cell]]
        for key in keys:
            self._count(key, -1)
        self.sums = self.sums.declaring(workload, now)
        for key in keys:
            self._count(key, 1)
            for node in self._parts[key]:
                self._offer(node)

    def _price(self, node: str, inventory: Inventory | None) -> None:
        was = self._prices.pop(node, None)
        gpus = 0 if inventory is None else sum(device.parent is None for device in inventory.devices)
        if inventory is not None and inventory.price_usd_per_hour is not None and gpus:
            self._prices[node] = inventory.cell, inventory.price_usd_per_hour / gpus
        if was != self._prices.get(node):
            self._cheapest = None

    def _place(self, node: str, was: Inventory | None, now: Inventory | None) -> None:
        before, after = _replicas_of(was), _replicas_of(now)
        for key in {**before, **after}:
            if before.get(key) == after.get(key):
                continue
            parts = self._parts.setdefault(key, {})
            if key in after:
                parts[node] = after[key]
            else:
                parts.pop(node, None)
            self._count(key, -1)
            self._put(key, parts)
            self._count(key, 1)

    def _put(self, key: _Key, parts: Mapping[str, tuple[str, ...]]) -> None:
        """Place the replicas of a workload; a replica that spans nodes counts once, on the node known first."""
        cell, workload = key
        replicas: dict[str, str] = {}
        for node in sorted(parts, key=self._rank.__getitem__):
            for replica in parts[node]:
                replicas.setdefault(replica, node)
        of_cell = {**self.placed.get(cell, {}), workload: replicas}
        if not replicas:
            del of_cell[workload], self._parts[key]
        self.placed = {**self.placed, cell: of_cell}

    def _count(self, key: _Key, sign: int) -> None:
        cell, workload = key
        replicas = sign * len(self.placed.get(cell, {}).get(workload, {}))
        if replicas:
            self.sums = self.sums.holding(cell, self.sums.of(workload), replicas)

    def _offer(self, node: str) -> None:
        """Bring the spots of a node up to date."""
        cell, before = self._spots.pop(node, ("", frozenset[Spot]()))
        info = self.nodes.get(node)
        after = frozenset[Spot]()
        if info is not None and info.schedulable:
            after = spots_of(self.gpus.get(node, ()), self.sums.declared)
        if info is None or cell != info.cell:
            self.sums, before = self.sums.offering(cell, node, before, ()), frozenset[Spot]()
        if info is not None:
            self.sums = self.sums.offering(info.cell, node, before, after)
            self._spots[node] = (info.cell, after)


def _replicas_of(inventory: Inventory | None) -> dict[_Key, tuple[str, ...]]:
    made: dict[_Key, tuple[str, ...]] = {}
    if inventory is not None:
        for part in inventory.allocations:
            key = (inventory.cell, part.workload)
            made[key] = (*made.get(key, ()), part.replica)
    return made


def _undivided(node: Inventory) -> tuple[Gpu, ...]:
    """The GPUs that MIG does not divide."""
    parts: dict[int, list[Allocation]] = {}
    for part in node.allocations:
        for row in part.devices:
            parts.setdefault(row, []).append(part)
    return tuple(
        _gpu(device, parts.get(row, ()))
        for row, device in enumerate(node.devices)
        if device.parent is None and device.mig_profile is None and not device.mig_enabled
    )


def _gpu(device: Device, parts: Sequence[Allocation]) -> Gpu:
    placed = sum(part.placed for part in parts)
    return Gpu(tuple(sorted(part.workload for part in parts)), shared=device.shared or placed > 1)
