"""Tables of the world, built from the records of the compacted topics."""

from collections.abc import Mapping
from threading import RLock

from flyball_actuators.guard import World
from flyball_actuators.world.power_limits import PowerLimits
from flyball_actuators.world.shown import Shown
from flyball_contracts.codec import BINDINGS
from flyball_contracts.records import Approval, Inventory, Record, Stop, WorkloadSpec
from flyball_contracts.topics import CONTROLS, WORKLOADS


class WorldTables:
    """Workloads, nodes, placements, stops and approvals; records are applied in the order of their topics.

    Thread-safe: what it returns is never changed.
    """

    def __init__(self, power_limits: PowerLimits | None = None) -> None:
        self.stops: tuple[Stop, ...] = ()
        self._workloads: dict[str, WorkloadSpec] = {}
        self._shown = Shown()
        self._limits = power_limits or PowerLimits()
        self._orders: dict[str, Stop | Approval] = {}
        self._approvals: tuple[Approval, ...] = ()
        self._view: World | None = None
        self._turn = RLock()

    def take(self, record: Record) -> None:
        """Apply the next record of a topic."""
        with self._turn:
            self._take(record)
            self._view = None

    def forget(self, topic: str, key: str) -> None:
        """Apply a tombstone."""
        with self._turn:
            self._forget(topic, key)
            self._view = None

    def view(self, stop: str) -> World:
        """The world for the guard; ``stop`` is the kill switch's reason, empty while it is off."""
        with self._turn:
            if self._view is None:
                shown = self._shown
                self._view = World(
                    {**self._workloads}, shown.nodes, shown.placed, "", self._limits.by_workload(shown.inventories),
                    self.stops, self._approvals, shown.gpus, sums=shown.sums,
                    usd_per_gpu_hour=shown.usd_per_gpu_hour,
                )  # fmt: skip
            return self._view._replace(stop=stop)

    def _take(self, record: Record) -> None:
        if isinstance(record, WorkloadSpec):
            self._workloads[record.workload] = record
            self._shown.declare(record.workload, record)
        elif isinstance(record, Inventory):
            self._limits.see(record, self._shown.inventories.get(record.node))
            self._shown.take(record)
        elif isinstance(record, Stop | Approval):
            self._order(BINDINGS[type(record)].key(record), record)

    def _forget(self, topic: str, key: str) -> None:
        if topic == WORKLOADS.name:
            self._workloads.pop(key, None)
            self._shown.declare(key, None)
        elif topic == CONTROLS.name:
            self._order(key, None)
        else:
            self._shown.forget(key)
            self._limits.changed()

    def replicas(self, cell: str, workload: str) -> Mapping[str, str]:
        """Node of each replica of a workload."""
        return self._shown.placed.get(cell, {}).get(workload, {})

    def busy(self, cell: str) -> frozenset[str]:
        """Nodes of a cell on which a replica runs."""
        return frozenset(node for replicas in self._shown.placed.get(cell, {}).values() for node in replicas.values())

    def declared(self, workload: str) -> WorkloadSpec | None:
        """Specification of a workload, removed or not; ``None`` if it has none."""
        return self._workloads.get(workload)

    def usd_per_gpu_hour(self, cell: str, workload: str) -> float | None:
        """Price of a GPU on the workload's nodes, else in its cell, in USD per hour; ``None`` if unknown."""
        homes = set(self.replicas(cell, workload).values())
        for names in (homes, tuple(self._shown.inventories)):
            known = [
                (node.price_usd_per_hour, sum(device.parent is None for device in node.devices))
                for name in names
                if (node := self._shown.inventories.get(name)) is not None
                and node.cell == cell
                and node.price_usd_per_hour is not None
            ]
            gpus = sum(count for _, count in known)
            if gpus:
                return sum(price for price, _ in known) / gpus
        return None

    def _order(self, key: str, order: Stop | Approval | None) -> None:
        self._orders.pop(key, None)
        if order is not None and not (isinstance(order, Stop) and order.removed):
            self._orders[key] = order
        orders = self._orders.values()
        self.stops = tuple(order for order in orders if isinstance(order, Stop))
        self._approvals = tuple(order for order in orders if isinstance(order, Approval))
