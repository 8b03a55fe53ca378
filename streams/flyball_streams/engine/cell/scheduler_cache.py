"""An arbiter's model of free and reserved GPUs, updated from tick to tick; it can be rebuilt, so it is not state."""

from collections.abc import Hashable

from flyball_contracts.records import WorkloadSpec
from flyball_streams.engine.cell.actions.limits import per_replica
from flyball_streams.engine.cell.actions.victims import Holders
from flyball_streams.engine.cell.memory import Memory, outstanding
from flyball_streams.engine.cell.placement import Piece, Place, Placement
from flyball_streams.engine.fleet_index import FleetIndex


class SchedulerCache:
    """The placement of every GPU of a cell, and what follows from the inventories.

    ``reserved`` are the places kept for replicas still to come, by workload. ``unplaced`` are workloads, one for each
    replica, whose reserved room is not there. ``version`` identifies the inputs of the cache. ``infeasible`` maps
    workloads to the situation in which no room could be made for them.
    """

    def __init__(self, directory: FleetIndex, cell: str) -> None:
        self.directory = directory
        self.cell = cell
        self.placement = Placement(directory, cell)
        self.reserved: dict[str, list[Place]] = {}
        self.unplaced: list[WorkloadSpec] = []
        self.version: Hashable = None
        self.infeasible: dict[str, Hashable] = {}
        self._holders: tuple[int, Holders] | None = None
        self._price: tuple[int, float | None] | None = None
        self._changes = 0

    def refresh(self, memory: Memory, now: int) -> None:
        """Compute what is free once open orders have stopped their victims and taken their places."""
        self._changes += self.placement.refresh(memory.unhealthy)
        if len(self.infeasible) > len(self.directory.workloads(self.cell)):
            self.infeasible = {}
        places: list[tuple[WorkloadSpec, Place]] = []
        inputs: list[Hashable] = []
        for name in sorted(memory.orders, key=lambda n: (memory.orders[n].decided_ns, n)):
            spec, order = self.directory.spec(name), memory.believed(name, now)
            if spec is None or spec.cell != self.cell or order is None:
                continue
            inputs.append((name, order.id, order.replicas))
            if order.victims:
                stopping = frozenset(order.victims)
                self.placement.stop(r for r in self.directory.replicas(name) if r.name in stopping)
            places += [(spec, place) for place in outstanding(order, name, self.directory)]
        for key, move in sorted(memory.moves.items()):
            if move.node and move.node not in self._nodes_of(move.workload, move.replica):
                inputs.append((key, move.id))
                self.placement.take([Piece(move.model, move.node, float(move.devices))])
        for pool, stock in sorted(memory.stocks.items()):
            if stock.change is not None and stock.change.victims:
                inputs.append((pool, stock.change.id))
                self.placement.close(stock.change.victims)
        mark = self.placement.mark()
        self._reserve(places)
        if self.unplaced:  # others may hold the only places where these fit; no replica is bound to its first place
            self.placement.rollback(mark)
            self._reserve(sorted(places, key=lambda item: -per_replica(item[0])), again=True)
        self.version = self._changes, self.directory.version, tuple(inputs)

    def _reserve(self, places: list[tuple[WorkloadSpec, Place]], *, again: bool = False) -> None:
        """Reserve room for replicas still to come: at their places, or wherever they fit (``again``)."""
        self.reserved, self.unplaced = {}, []
        for spec, place in places:
            kept = None if again else self.placement.take(place)
            if kept is None:
                self.unplaced.append(spec)
            else:
                self.reserved.setdefault(spec.workload, []).append(kept)
        self.place_pending()

    def place_pending(self) -> None:
        """Find other room for unplaced replicas."""
        unplaced, self.unplaced = self.unplaced, []
        for spec in unplaced:
            place = self.placement.place(spec)
            if place is None:
                self.unplaced.append(spec)
            else:
                self.reserved.setdefault(spec.workload, []).append(place)

    @property
    def holders(self) -> Holders:
        """Interruptible work in bundles."""
        if self._holders is None or self._holders[0] != self._changes:
            self._holders = self._changes, Holders(self.directory, self.cell, self.placement)
        return self._holders[1]

    @property
    def gpu_price(self) -> float | None:
        """Mean price of one GPU in USD per hour over the nodes whose price is known."""
        if self._price is None or self._price[0] != self.directory.version:
            self._price = self.directory.version, self._mean_price()
        return self._price[1]

    def _mean_price(self) -> float | None:
        priced = [(n.price_usd_per_hour, len(n.devices)) for n in self.directory.nodes(self.cell) if n.devices]
        known = [(price, devices) for price, devices in priced if price is not None]
        gpus = sum(devices for _, devices in known)
        return sum(price for price, _ in known) / gpus if gpus else None

    def _nodes_of(self, workload: str, replica: str) -> set[str]:
        return {r.node for r in self.directory.parts(workload, replica)}
