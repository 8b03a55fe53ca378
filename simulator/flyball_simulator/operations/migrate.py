"""Migrate: moves one replica to another node."""

from msgspec.structs import replace

from flyball_contracts.errors import RecordError
from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import Migrate, SubjectState
from flyball_simulator.cell.placement import Replica
from flyball_simulator.cell.plant import Plant
from flyball_simulator.operations.base import Progress, Refused


class MigrateTask:
    """Replaces a single replica: the new one starts, and once it is ready the old one stops.

    A rank of a gang keeps its name: the gang saves its work if it can, and resumes from its last checkpoint when the
    rank is ready elsewhere. Without room within the configured time nothing moves, and the task fails.
    """

    def __init__(self, plant: Plant, w: int, decision: Migrate) -> None:
        self._plant, self._w, self._decision = plant, w, decision
        placement = plant.placement
        self._old = placement.find(w, decision.replica)
        self._from = self._old.node
        self._gang = placement.workloads[w].gang
        self._give_up_ns = plant.now_ns + round(plant.config.room_wait_s * NS_PER_S)
        self._to = None if not decision.to_node else self._node(decision.to_node)
        self._row = None if not decision.from_device else _row_of(plant, decision.from_device)
        self._new: Replica | None = None
        self._saved_ns: int | None = None
        self._saves = False
        self.names: tuple[str, ...] = (decision.replica,)

    def expected(self, before: SubjectState) -> SubjectState:
        """The replica on its new node, or on none if a new replica takes its place."""
        nodes = {self.names[0]: self._decision.to_node if self._gang else ""}
        return replace(before, ready=before.replicas, nodes=nodes, version="")

    def begin(self) -> None:
        """Cordon its source, and start the move."""
        plant = self._plant
        if self._row is not None:
            plant.placement.cordon(self._row)
        elif self._decision.from_node == plant.site.nodes[self._old.node].name:
            plant.placement.close(self._old.node)
        plant.versions[self._w] += 1
        self.advance()

    def advance(self) -> Progress:
        """Do the next step of the move when it is due."""
        if self._new is None and self._old.node != self._from:
            where = self._plant.site.nodes[self._old.node].name
            return Progress("done", f"{self._old.name} runs on {where}, where the platform has started it again")
        gone = self._old not in self._plant.placement.placed[self._w]
        if self._new is None and (gone or self._old.stopping):
            return Progress("failed", f"{self._old.name} was stopped before it could move")
        return self._gang_step() if self._gang else self._own_step(gone)

    def supersede(self) -> bool:
        """A replica that has started elsewhere still replaces the old one."""
        return self._new is not None and not self._gang

    def _own_step(self, gone: bool) -> Progress:
        plant, old = self._plant, self._old
        if self._new is None:
            node = self._room()
            if node is None:
                return self._waiting()
            self._new = plant.placement.start(self._w, node, plant.now_ns)
            old.leaving = True
            self.names = (old.name, self._new.name)
        new = self._new
        where = plant.site.nodes[new.node].name
        if new.stopping:
            return Progress("failed", f"{new.name}, which was to replace {old.name}, was stopped")
        if new.ready_ns > plant.clock_ns:
            return Progress("running", f"{new.name} starts on {where}; {old.name} works until it is ready")
        if not gone:
            if not old.stopping:
                plant.stop(old)
            return Progress("running", f"{new.name} is ready on {where}; {old.name} stops")
        return Progress("done", f"{old.name} moved to {where} as {new.name}")

    def _gang_step(self) -> Progress:
        plant, old = self._plant, self._old
        if self._new is None:
            node = self._room()
            if node is None:
                return self._waiting()
            if self._saved_ns is None:
                self._saves = not plant.hung(self._w)
                self._saved_ns = plant.save(self._w) if self._saves else plant.now_ns
            if plant.now_ns < self._saved_ns:
                return Progress("running", f"{old.name}: its gang writes a checkpoint")
            plant.resume(self._w, saved=self._saves)
            plant.placement.move(old, node, plant.now_ns)
            self._new = old
        where = plant.site.nodes[old.node].name
        if old.stopping:
            return Progress("failed", f"{old.name} was stopped on its way to {where}")
        if old.ready_ns > plant.clock_ns:
            return Progress("running", f"{old.name} starts on {where}")
        return Progress("done", f"{old.name} moved to {where}; its gang goes on")

    def _room(self) -> int | None:
        placement = self._plant.placement
        if self._to is None:
            return placement.node_for(self._w, exclude=self._old.node)
        return self._to if placement.fits(self._w, self._to) else None

    def _waiting(self) -> Progress:
        where = self._decision.to_node or "no other node"
        has = "has no room" if self._to is not None else "has room"
        if self._plant.now_ns < self._give_up_ns:
            return Progress("running", f"{self._old.name} stays until there is room: {where} {has}")
        waited_s = self._plant.config.room_wait_s
        return Progress("failed", f"{self._old.name} stays: {where} {has} after {waited_s:.0f} s")

    def _node(self, name: str) -> int:
        plant = self._plant
        node = next((i for i, node in enumerate(plant.site.nodes) if node.name == name), None)
        if node is None:
            raise Refused("unknown_target", f"{plant.specs[self._w].workload}: there is no node {name!r}")
        if node == self._old.node:
            raise RecordError(f"{self._old.name} runs on {name} already; name another node")
        allowed = {n for nodes in plant.placement.workloads[self._w].nodes for n in nodes}
        if node not in allowed:
            pool = plant.site.nodes[node].pool
            barred = [n.name for i, n in enumerate(plant.site.nodes) if n.pool == pool and i not in allowed]
            raise Refused(
                "invalid",
                f"{plant.specs[self._w].workload} may not run on {name}, a node of {pool.name}",
                tuple(barred),
            )
        return node


def _row_of(plant: Plant, device: str) -> int:
    for node in plant.site.nodes:
        for row, candidate in enumerate(node.devices, node.first):
            if candidate.id == device:
                return row
    raise Refused("unknown_target", f"there is no device {device!r} in cell {plant.config.cell}")
