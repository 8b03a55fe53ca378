"""Who runs where: replicas on GPUs, never two on one GPU."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flyball_collectors.fleet.site import Ints, Site
from flyball_contracts.errors import RecordError
from flyball_contracts.records import Allocation

FREE = -1


class Demanded(NamedTuple):
    """What placement must know of a workload; ``nodes`` are the nodes it may use, the preferred first."""

    name: str
    priority: int
    gpus: int
    gang: bool
    most: int
    cold_start_ns: int
    nodes: tuple[Ints, ...]


@dataclass
class Replica:
    """One placed replica; ``rows`` are GPUs of the fleet, all on ``node``; it can work from ``ready_ns`` on."""

    workload: int
    number: int
    name: str
    node: int
    rows: list[int]
    ready_ns: int


class Rows(NamedTuple):
    """The R placed replicas as arrays, sorted by node: the rows of the workload frames.

    ``starts`` is int64[M + 1] over the nodes, ``of_gpu`` int64[N] the replica of each GPU or R for a free one; the rest
    is [R]. ``number`` is the replica's own number within its workload.
    """

    workload: Ints
    number: Ints
    ready_ns: Ints
    gpus: Ints
    starts: Ints
    of_gpu: Ints


@dataclass
class Placement:
    """Replicas of all workloads; ``wanted`` is what each workload should have, ``changed`` the nodes to announce.

    A replica that does not fit stays wanted and is placed as soon as there is room, by priority. A gang is
    placed whole or not at all.
    """

    site: Site
    workloads: tuple[Demanded, ...]
    owner: NDArray[np.int64] = field(init=False)
    free: NDArray[np.int64] = field(init=False)
    usable: NDArray[np.bool_] = field(init=False)
    wanted: list[int] = field(init=False)
    placed: list[list[Replica]] = field(init=False)
    changed: set[int] = field(init=False)

    def __post_init__(self) -> None:
        self.owner = np.full(len(self.site.node_of), FREE, np.int64)
        self.usable = np.ones(len(self.site.node_of), np.bool_)
        self.free = np.diff(self.site.starts)
        self.wanted = [0] * len(self.workloads)
        self.placed = [[] for _ in self.workloads]
        self.changed = set()

    def want(self, workload: int, replicas: int, now_ns: int) -> int:
        """Change the number wanted; returns how many are placed. The newest replicas go first.

        Raises :class:`RecordError` for a number that the workload cannot have.
        """
        spec, placed = self.workloads[workload], self.placed[workload]
        if not 0 <= replicas <= spec.most:
            raise RecordError(f"{spec.name}: {replicas} replicas asked for; it takes 0 to {spec.most}")
        if spec.gang and replicas not in (0, spec.most):
            raise RecordError(f"{spec.name}: {replicas} replicas asked for; it is a gang and takes 0 or {spec.most}")
        self.wanted[workload] = replicas
        if len(placed) > replicas:
            while len(placed) > replicas:
                self._release(placed.pop())
            self.settle(now_ns)
        else:
            self._fill(workload, now_ns)
        return len(placed)

    def settle(self, now_ns: int) -> None:
        """Place what is wanted and fits, by priority."""
        order = sorted(range(len(self.workloads)), key=lambda w: (-self.workloads[w].priority, w))
        for workload in order:
            self._fill(workload, now_ns)

    def migrate(self, workload: int, name: str, to_node: int | None, now_ns: int) -> int | None:
        """Move a replica to ``to_node``, or to the fullest other node with room; ``None`` when there is no room.

        Raises :class:`RecordError` for a replica that does not run or a node that it may not run on.
        """
        replica = next((r for r in self.placed[workload] if r.name == name), None)
        if replica is None:
            raise RecordError(f"{self.workloads[workload].name} has no replica {name!r} that runs")
        if to_node == replica.node:
            raise RecordError(f"{name} runs on {self.site.nodes[replica.node].name} already; name another node")
        spec = self.workloads[workload]
        if to_node is None:
            to_node = self._node_for(spec, exclude=replica.node)
        elif not any(to_node in nodes for nodes in spec.nodes):
            raise RecordError(f"{spec.name} may not run on {self.site.nodes[to_node].name}")
        if to_node is None or self.free[to_node] < spec.gpus:
            return None
        self._release(replica)
        replica.node, replica.ready_ns = to_node, now_ns + spec.cold_start_ns
        replica.rows = self._take(to_node, spec.gpus, workload)
        return to_node

    def cordon(self, row: int) -> None:
        """Place nothing on a GPU from now on; who is on it stays."""
        if self.usable[row]:
            self.usable[row] = False
            if self.owner[row] == FREE:
                self.free[self.site.node_of[row]] -= 1

    def allocations(self, nodes: Iterable[int]) -> dict[int, tuple[Allocation, ...]]:
        """Allocations of some nodes, in the order of the workload frames' rows."""
        found: dict[int, list[Allocation]] = {node: [] for node in nodes}
        for replica in self._sorted():
            if replica.node in found:
                first = int(self.site.starts[replica.node])
                devices = tuple(row - first for row in replica.rows)
                name = self.workloads[replica.workload].name
                found[replica.node].append(Allocation(workload=name, replica=replica.name, devices=devices))
        return {node: tuple(listed) for node, listed in found.items()}

    def rows(self) -> Rows:
        """All placed replicas as arrays."""
        replicas = self._sorted()
        of_gpu = np.full(len(self.owner), len(replicas), np.int64)
        for i, replica in enumerate(replicas):
            of_gpu[replica.rows] = i
        per_node = np.bincount([r.node for r in replicas], minlength=len(self.site.nodes)).astype(np.int64)
        return Rows(
            workload=np.array([r.workload for r in replicas], np.int64),
            number=np.array([r.number for r in replicas], np.int64),
            ready_ns=np.array([r.ready_ns for r in replicas], np.int64),
            gpus=np.array([len(r.rows) for r in replicas], np.int64),
            starts=np.concatenate([np.zeros(1, np.int64), np.cumsum(per_node)]),
            of_gpu=of_gpu,
        )

    def _sorted(self) -> list[Replica]:
        return sorted((r for placed in self.placed for r in placed), key=lambda r: (r.node, r.rows))

    def _fill(self, workload: int, now_ns: int) -> None:
        spec, placed = self.workloads[workload], self.placed[workload]
        missing = self.wanted[workload] - len(placed)
        if missing <= 0:
            return
        if spec.gang and sum(int((self.free[nodes] // spec.gpus).sum()) for nodes in spec.nodes) < missing:
            return
        taken = {replica.number for replica in placed}
        number = 0
        for _ in range(missing):
            node = self._node_for(spec)
            if node is None:
                return
            while number in taken:
                number += 1
            taken.add(number)
            rows = self._take(node, spec.gpus, workload)
            ready_ns = now_ns + spec.cold_start_ns
            placed.append(Replica(workload, number, f"{spec.name}-{number}", node, rows, ready_ns))

    def _node_for(self, spec: Demanded, exclude: int | None = None) -> int | None:
        """The fullest node that has room, in the first pool that has one."""
        for nodes in spec.nodes:
            room = self.free[nodes]
            fits = room >= spec.gpus
            if exclude is not None:
                fits &= nodes != exclude
            if fits.any():
                return int(nodes[np.where(fits, room, np.iinfo(np.int64).max).argmin()])
        return None

    def _take(self, node: int, count: int, workload: int) -> list[int]:
        first, end = int(self.site.starts[node]), int(self.site.starts[node + 1])
        open_rows = (self.owner[first:end] == FREE) & self.usable[first:end]
        rows: list[int] = (np.flatnonzero(open_rows)[:count] + first).tolist()
        self.owner[rows] = workload
        self.free[node] -= count
        self.changed.add(node)
        return rows

    def _release(self, replica: Replica) -> None:
        self.owner[replica.rows] = FREE
        self.free[replica.node] += int(self.usable[replica.rows].sum())
        self.changed.add(replica.node)
