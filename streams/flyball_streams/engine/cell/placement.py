"""Every GPU of a cell as it will be after all open orders; supports trial placements with rollback.

A *room* is the GPUs of one model on one node. The base is what the inventories show, updated node by node. Changes by
open orders and trial placements are written to a journal on top of it, which can be rolled back.
"""

import math
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Iterable, Set
from typing import NamedTuple, TypeAlias

import msgspec

from flyball_contracts.records import Inventory, WorkloadSpec
from flyball_streams.engine.cell.actions.limits import SLACK, accepts, per_replica
from flyball_streams.engine.cell.tenancy import Tenancy, asks_for_part
from flyball_streams.engine.fleet_index import FleetIndex, Replica

Room: TypeAlias = tuple[str, str]
"""Model and node."""


class Piece(msgspec.Struct, array_like=True, frozen=True):
    """GPUs of one room; less than one is a share of a GPU."""

    model: str
    node: str
    gpus: float


Place: TypeAlias = list[Piece]
"""Placement of one replica: one room, or several if no node is large enough."""


class Node(NamedTuple):
    """State of one node: its zone and, by row, the model, whether it is usable, and how many replicas hold it.

    ``base`` are the holders in the inventories, ``holders`` those that remain once stopping replicas are gone.
    """

    zone: str
    models: list[str]
    usable: list[bool]
    base: list[int]
    holders: list[int]


class Placement:
    """Free GPUs of a cell by room.

    ``free`` are whole GPUs by room and ``total`` by model. Drained nodes, nodes whose agent has stopped, cordoned or
    unhealthy devices and GPUs divided by MIG have nothing free; work is placed on the MIG instances. No two tenants
    share a GPU.
    """

    def __init__(self, directory: FleetIndex, cell: str) -> None:
        self.directory = directory
        self.cell = cell
        self.free: dict[Room, int] = {}
        self.total: Counter[str] = Counter()
        self.nodes: dict[str, Node] = {}
        self._inventories: dict[str, Inventory] = {}
        self._unhealthy: frozenset[str] = frozenset()
        self._version = -1
        self._sizes: dict[str, Counter[int]] = {}
        self._kinds: dict[tuple[str, str], dict[int, list[str]]] = {}
        self._shares: dict[tuple[str, Room], list[float]] = {}
        self.tenancy = Tenancy(directory, cell)
        self._journal: list[Callable[[], None]] = []

    def refresh(self, unhealthy: Iterable[str]) -> bool:
        """Discard trial placements and apply the inventories; return whether anything may have changed."""
        self.rollback(0)
        if self.is_current(unhealthy):
            return False
        now_unhealthy = frozenset(unhealthy)
        changed = now_unhealthy ^ self._unhealthy
        self._unhealthy, self._version = now_unhealthy, self.directory.version
        gone = set(self._inventories)
        for inventory in self.directory.nodes(self.cell):
            gone.discard(inventory.node)
            before = self._inventories.get(inventory.node)
            if before is not inventory or (changed and any(d.id in changed for d in inventory.devices)):
                self._drop(inventory.node)
                self._add(inventory)
        for node in gone:
            self._drop(node)
        return True

    def is_current(self, unhealthy: Iterable[str]) -> bool:
        """Whether the inventories and unhealthy devices are the same as at the last refresh."""
        return (self._version, self._unhealthy) == (self.directory.version, frozenset(unhealthy))

    def mark(self) -> int:
        """Position in the journal for a rollback."""
        return len(self._journal)

    def rollback(self, mark: int) -> None:
        """Undo all changes after a mark."""
        while len(self._journal) > mark:
            self._journal.pop()()

    def largest(self, spec: WorkloadSpec) -> int:
        """GPUs of the largest room that a workload accepts, free or not."""
        return max((max(sizes) for model, sizes in self._sizes.items() if sizes and accepts(spec, model)), default=0)

    def spans(self, spec: WorkloadSpec) -> bool:
        """Whether a replica needs more GPUs than any node has, so that it runs on several nodes."""
        return whole(per_replica(spec)) > self.largest(spec)

    def usable(self, spec: WorkloadSpec) -> int:
        """Free whole GPUs of models that a workload accepts, on any node."""
        return sum(n for model, n in self.total.items() if accepts(spec, model))

    def fitting(self, spec: WorkloadSpec) -> int:
        """Number of replicas with whole GPUs, each on one node, that fit."""
        gpus, models = whole(per_replica(spec)), {model for model in self.total if accepts(spec, model)}
        return sum(free // gpus for (model, _), free in self.free.items() if model in models)

    def place(self, spec: WorkloadSpec, among: Set[str] | None = None) -> Place | None:
        """Take the fullest room that fits a replica, ``among`` these nodes; ``None`` if none fits."""
        gpus = per_replica(spec)
        if gpus <= 0:
            return []
        if self.tenancy.bars(spec) or (asks_for_part(spec) and self._others_share(spec.tenant)):
            return None
        if gpus < 1 - SLACK:
            return self._share(spec, gpus, among)
        if self.spans(spec):
            return self._span(spec, whole(gpus), among)
        room = self.best(spec, whole(gpus), among=among)
        return None if room is None else self.take([Piece(*room, float(whole(gpus)))])

    def best(
        self,
        spec: WorkloadSpec,
        gpus: int,
        away_from: Set[str] = frozenset(),
        zone: str | None = None,
        among: Set[str] | None = None,
    ) -> Room | None:
        """Room with ``gpus`` free whole GPUs: in the given zone if any, then the fullest, then by name."""
        found: list[tuple[bool, int, str, str]] = []
        for (model, there), by_free in self._kinds.items():
            if not accepts(spec, model):
                continue
            for free in sorted(n for n in by_free if n >= gpus):
                there_are = (name for name in by_free[free] if among is None or name in among)
                node = next((name for name in there_are if name not in away_from), None)
                if node is not None:
                    found.append((zone is not None and there != zone, free, node, model))
                    break
        if not found:
            return None
        *_, node, model = min(found)
        return model, node

    def take(self, place: Place, tenant: str = "") -> Place | None:
        """Take a given place for a tenant, all of it; ``None`` if it is not free."""
        mark = self.mark()
        for piece in place:
            room = piece.model, piece.node
            taken = (
                self._take_share(room, piece.gpus, tenant)
                if piece.gpus < 1 - SLACK
                else self._take(room, whole(piece.gpus))
            )
            if not taken:
                self.rollback(mark)
                return None
        return place

    def close(self, nodes: Iterable[str]) -> None:
        """Take everything that is free on nodes that are about to go."""
        for name in nodes:
            for model in sorted(set(self.nodes[name].models)) if name in self.nodes else ():
                if free := self.free.get((model, name), 0):
                    self.take([Piece(model, name, float(free))])

    def give(self, place: Place) -> None:
        """Release a place."""
        for piece in place:
            room = piece.model, piece.node
            if piece.gpus >= 1 - SLACK and room in self.free:
                self._set(room, self.free[room] + whole(piece.gpus))

    def stop(self, replicas: Iterable[Replica]) -> None:
        """Free the GPUs that only these replicas hold."""
        left: list[tuple[list[int], int]] = []
        freed: dict[Room, int] = {}
        for replica in replicas:
            node = self.nodes.get(replica.node)
            if node is None:
                continue
            for row in set(replica.devices):
                node.holders[row] -= 1
                left.append((node.holders, row))
                if not node.holders[row] and node.usable[row]:
                    room = node.models[row], replica.node
                    freed[room] = freed.get(room, 0) + 1
        if not left:
            return

        def undo() -> None:
            for holders, row in left:
                holders[row] += 1

        self._journal.append(undo)
        for room, gpus in freed.items():
            self._set(room, self.free[room] + gpus)

    def gains(self, replicas: Iterable[Replica]) -> dict[Room, int]:
        """GPUs by room that become free when these replicas stop and all others run on."""
        leaving = Counter((r.node, row) for r in replicas for row in set(r.devices))
        found: Counter[Room] = Counter()
        for (name, row), n in leaving.items():
            node = self.nodes.get(name)
            if node is not None and node.usable[row] and node.base[row] == n:
                found[node.models[row], name] += 1
        return dict(found)

    def _take(self, room: Room, gpus: int) -> bool:
        free = self.free.get(room, 0)
        if free < gpus:
            return False
        self._set(room, free - gpus)
        return True

    def _share(self, spec: WorkloadSpec, gpus: float, among: Set[str] | None) -> Place | None:
        """Take a share of the fullest shared GPU, or else of a free one."""
        fit = [
            (min(s for s in left if s >= gpus - SLACK), node, model)
            for (tenant, (model, node)), left in self._shares.items()
            if tenant == spec.tenant
            and accepts(spec, model)
            and (among is None or node in among)
            and any(s >= gpus - SLACK for s in left)
        ]
        if fit:
            _, node, model = min(fit)
            return self.take([Piece(model, node, gpus)], spec.tenant)
        room = self.best(spec, 1, among=among)
        return None if room is None else self.take([Piece(*room, gpus)], spec.tenant)

    def _others_share(self, tenant: str) -> bool:
        """Whether another tenant has been given shares of GPUs: the platform may put both on one."""
        return any(left and other != tenant for (other, _), left in self._shares.items())

    def _take_share(self, room: Room, gpus: float, tenant: str) -> bool:
        key = tenant, room
        left = self._shares.get(key, [])
        fit = min((s for s in left if s >= gpus - SLACK), default=None)
        if fit is None and not self._take(room, 1):
            return False
        after = sorted([*left, (1.0 if fit is None else fit) - gpus])
        if fit is not None:
            after.remove(fit)
        self._shares[key] = after

        def undo() -> None:
            self._shares[key] = left

        self._journal.append(undo)
        return True

    def _span(self, spec: WorkloadSpec, gpus: int, among: Set[str] | None) -> Place | None:
        """Take free GPUs on as few nodes as possible, of one model if it has enough."""
        free = {room: n for room, n in self.free.items() if n and (among is None or room[1] in among)}
        total = self.total if among is None else Counter[str]()
        for (model, _), n in free.items() if among is not None else ():
            total[model] += n
        models = sorted((m for m in total if accepts(spec, m)), key=lambda m: (-total[m], m))
        enough = [m for m in models if total[m] >= gpus]
        kept = enough[:1] or models
        rooms = [(room, n) for room, n in free.items() if room[0] in kept]
        place: Place = []
        for room, n in sorted(rooms, key=lambda item: (-item[1], item[0])):
            if gpus:
                place.append(Piece(*room, float(min(n, gpus))))
                gpus -= min(n, gpus)
        return None if gpus else self.take(place)

    def _set(self, room: Room, free: int) -> None:
        before = self.free[room]
        self._move(room, before, free)
        self._journal.append(lambda: self._move(room, free, before))

    def _move(self, room: Room, before: int, after: int) -> None:
        model, node = room
        self.free[room] = after
        self.total[model] += after - before
        kind = self._kinds[model, self.nodes[node].zone]
        _out(kind, before, node)
        names = kind.get(after)
        if names is None:
            kind[after] = [node]
        else:
            insort(names, node)

    def _add(self, inventory: Inventory) -> None:
        name, devices = inventory.node, inventory.devices
        holders = [0] * len(devices)
        for a in inventory.allocations:
            for row in set(a.devices):
                if 0 <= row < len(devices):
                    holders[row] += 1
        open_ = inventory.schedulable and inventory.agent != "stopped"
        usable = [open_ and d.schedulable and not d.mig_enabled and d.id not in self._unhealthy for d in devices]
        models = [d.model for d in devices]
        self._inventories[name] = inventory
        self.nodes[name] = Node(inventory.zone, models, usable, holders, holders[:])
        free = Counter(m for m, u, h in zip(models, usable, holders, strict=True) if u and not h)
        for model, size in Counter(d.model for d in devices if not d.mig_enabled).items():
            self._sizes.setdefault(model, Counter())[size] += 1
            self.free[model, name] = free[model]
            self.total[model] += free[model]
            insort(self._kinds.setdefault((model, inventory.zone), {}).setdefault(free[model], []), name)

    def _drop(self, name: str) -> None:
        inventory, node = self._inventories.pop(name, None), self.nodes.pop(name, None)
        if inventory is None or node is None:
            return
        for model, size in Counter(d.model for d in inventory.devices if not d.mig_enabled).items():
            self._sizes[model][size] -= 1
            self._sizes[model] += Counter()  # sizes that no node has any more are gone
            free = self.free.pop((model, name))
            self.total[model] -= free
            _out(self._kinds[model, node.zone], free, name)


def whole(gpus: float) -> int:
    """Whole GPUs that a replica needs if it shares none."""
    return math.ceil(gpus - SLACK)


def _out(kind: dict[int, list[str]], free: int, node: str) -> None:
    names = kind[free]
    del names[bisect_left(names, node)]
    if not names:
        del kind[free]
