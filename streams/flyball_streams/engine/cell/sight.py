"""What an arbiter sees of its cell, kept from tick to tick by what changes; none of it is state."""

from collections.abc import Hashable

from flyball_contracts.records import WorkloadSpec
from flyball_streams.engine.cell.actions.limits import per_replica
from flyball_streams.engine.cell.actions.victims import Holders
from flyball_streams.engine.cell.memory import Memory, outstanding
from flyball_streams.engine.cell.placement import Piece, Place, Placement
from flyball_streams.engine.known import Known


class Sight:
    """The copy of every GPU, and what follows from the inventories.

    ``placed`` is where replicas that are still to come are kept room for, by workload, and ``owed`` are workloads, one
    for each replica, that were promised room which is not there. ``seen`` names all that the copy was made of, and
    ``vain`` the cases by workload in which nobody can make room.
    """

    def __init__(self, directory: Known, cell: str) -> None:
        self.directory = directory
        self.cell = cell
        self.placement = Placement(directory, cell)
        self.placed: dict[str, list[Place]] = {}
        self.owed: list[WorkloadSpec] = []
        self.seen: Hashable = None
        self.vain: dict[str, Hashable] = {}
        self._holders: tuple[int, Holders] | None = None
        self._price: tuple[int, float | None] | None = None
        self._changes = 0

    def look(self, memory: Memory, now: int) -> None:
        """See what is free, once open orders have stopped what they stop and taken what they were granted."""
        self._changes += self.placement.refresh(memory.unhealthy)
        if len(self.vain) > len(self.directory.workloads(self.cell)):
            self.vain = {}
        places: list[tuple[WorkloadSpec, Place]] = []
        seen: list[Hashable] = []
        for name in sorted(memory.orders, key=lambda n: (memory.orders[n].decided_ns, n)):
            spec, order = self.directory.spec(name), memory.believed(name, now)
            if spec is None or spec.cell != self.cell or order is None:
                continue
            seen.append((name, order.id, order.replicas))
            if order.victims:
                stopping = frozenset(order.victims)
                self.placement.stop(r for r in self.directory.replicas(name) if r.name in stopping)
            places += [(spec, place) for place in outstanding(order, name, self.directory)]
        for key, move in sorted(memory.moves.items()):
            if move.node and move.node not in self._nodes_of(move.workload, move.replica):
                seen.append((key, move.id))
                self.placement.take([Piece(move.model, move.node, float(move.devices))])
        for pool, stock in sorted(memory.stocks.items()):
            if stock.change is not None and stock.change.victims:
                seen.append((pool, stock.change.id))
                self.placement.close(stock.change.victims)
        mark = self.placement.mark()
        self._keep(places)
        if self.owed:  # others may stand where these fit; nobody is bound to the place that was thought of first
            self.placement.rollback(mark)
            self._keep(sorted(places, key=lambda item: -per_replica(item[0])), anew=True)
        self.seen = self._changes, self.directory.version, tuple(seen)

    def _keep(self, places: list[tuple[WorkloadSpec, Place]], *, anew: bool = False) -> None:
        """Keep room for replicas that are still to come, where it was found or anew."""
        self.placed, self.owed = {}, []
        for spec, place in places:
            kept = None if anew else self.placement.take(place)
            if kept is None:
                self.owed.append(spec)
            else:
                self.placed.setdefault(spec.workload, []).append(kept)
        self.settle()

    def settle(self) -> None:
        """Find other room for those whose own is not there."""
        owed, self.owed = self.owed, []
        for spec in owed:
            place = self.placement.place(spec)
            if place is None:
                self.owed.append(spec)
            else:
                self.placed.setdefault(spec.workload, []).append(place)

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
