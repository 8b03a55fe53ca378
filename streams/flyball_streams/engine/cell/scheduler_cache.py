"""An arbiter's model of free and reserved GPUs, updated from tick to tick; it can be rebuilt, so it is not state."""

from collections.abc import Hashable, Mapping

from flyball_contracts.records import WorkloadSpec
from flyball_streams.engine.cell.actions.limits import per_replica
from flyball_streams.engine.cell.actions.victims import Holders
from flyball_streams.engine.cell.memory import Memory, Order, outstanding
from flyball_streams.engine.cell.placement import Piece, Place, Placement
from flyball_streams.engine.fleet_index import FleetIndex


class SchedulerCache:
    """The placement of every GPU of a cell, and what follows from the inventories.

    ``reserved`` are the places kept for replicas still to come, by workload. ``unplaced`` are workloads, one for each
    replica, whose reserved room is not available. ``version`` identifies the inputs of the cache. ``infeasible`` maps
    workloads to the situation in which no room could be made for them, ``waiting`` to the one in which they waited for
    victims, and ``found`` to the one in which victims would have made room, with the number of replicas.
    """

    def __init__(self, directory: FleetIndex, cell: str) -> None:
        self.directory = directory
        self.cell = cell
        self.placement = Placement(directory, cell)
        self.reserved: dict[str, list[Place]] = {}
        self.unplaced: list[WorkloadSpec] = []
        self.version: Hashable = None
        self.infeasible: dict[str, Hashable] = {}
        self.waiting: dict[str, Hashable] = {}
        self.found: dict[str, tuple[object, int]] = {}
        self._holders: tuple[int, Holders] | None = None
        self._price: tuple[int, float | None] | None = None
        self._changes = 0
        self._inputs: Hashable = None
        self._mark = 0
        self._reserved: dict[str, list[Place]] = {}
        self._unplaced: list[WorkloadSpec] = []

    def refresh(self, memory: Memory, now: int) -> None:
        """Compute what is free once open orders have stopped their victims and taken their places.

        In most ticks none of the inputs has changed since the last tick: then only trial placements are undone.
        """
        if len(self.infeasible) > len(self.directory.workloads(self.cell)):
            self.infeasible = {}
        if len(self.waiting) > len(self.directory.workloads(self.cell)):
            self.waiting = {}
        if len(self.found) > len(self.directory.workloads(self.cell)):
            self.found = {}
        orders = self._orders(memory, now)
        moves = [
            (key, move)
            for key, move in sorted(memory.moves.items())
            if move.node and move.node not in self._nodes_of(move.workload, move.replica)
        ]
        leaving = [
            (pool, stock.change)
            for pool, stock in sorted(memory.stocks.items())
            if stock.change is not None and stock.change.victims
        ]
        inputs = (
            tuple((spec.workload, order.id, order.replicas) for spec, order in orders),
            tuple((key, move.id) for key, move in moves),
            tuple((pool, change.id) for pool, change in leaving),
        )
        if inputs == self._inputs and self.placement.is_current(memory.unhealthy):
            self.placement.rollback(self._mark)
            self.reserved, self.unplaced = _copies(self._reserved), self._unplaced[:]
            return
        self._changes += self.placement.refresh(memory.unhealthy)
        places: list[tuple[WorkloadSpec, Place]] = []
        for spec, order in orders:
            if order.victims:
                stopping = frozenset(order.victims)
                self.placement.stop(r for r in self.directory.replicas(spec.workload) if r.name in stopping)
            places += [(spec, place) for place in outstanding(order, spec.workload, self.directory)]
        for _, move in moves:
            self.placement.take([Piece(move.model, move.node, float(move.devices))])
        for _, change in leaving:
            self.placement.close(change.victims)
        mark = self.placement.mark()
        self._reserve(places)
        if self.unplaced:  # others may hold the only places where these fit; no replica is bound to its first place
            self.placement.rollback(mark)
            self._reserve(sorted(places, key=lambda item: -per_replica(item[0])), again=True)
        self.version = self._changes, self.directory.version, inputs
        self._inputs, self._mark = inputs, self.placement.mark()
        self._reserved, self._unplaced = _copies(self.reserved), self.unplaced[:]

    def is_unchanged(self, mark: int) -> bool:
        """Whether the placement up to a mark is as open orders leave it: this tick has placed nothing before."""
        return mark == self._mark

    def _orders(self, memory: Memory, now: int) -> list[tuple[WorkloadSpec, Order]]:
        """Orders of this cell that are in flight, the oldest first."""
        found = [
            (spec, order)
            for name in memory.orders
            if (order := memory.believed(name, now)) is not None
            and (spec := self.directory.spec(name)) is not None
            and spec.cell == self.cell
        ]
        return sorted(found, key=lambda both: (both[1].decided_ns, both[0].workload))

    def _reserve(self, places: list[tuple[WorkloadSpec, Place]], *, again: bool = False) -> None:
        """Reserve room for replicas still to come: at their places, or wherever they fit (``again``)."""
        self.reserved, self.unplaced = {}, []
        for spec, place in places:
            kept = None if again else self.placement.take(place, spec.tenant)
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


def _copies(places: Mapping[str, list[Place]]) -> dict[str, list[Place]]:
    return {workload: list(of) for workload, of in places.items()}
