"""Placement of replicas on GPUs; a GPU holds at most one replica."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flyball_contracts.errors import RecordError
from flyball_contracts.records import Allocation
from flyball_simulator.hardware.site import Ints, Site

FREE = -1
NEVER = 2**63 - 1


class Demanded(NamedTuple):
    """Placement requirements of a workload; ``nodes`` are the nodes it may use per pool, the preferred pool first."""

    name: str
    priority: int
    gpus: int
    gang: bool
    most: int
    cold_start_ns: int
    stop_ns: int
    nodes: tuple[Ints, ...]


@dataclass(eq=False)
class Replica:
    """One placed replica; ``rows`` are GPUs of the fleet, all on ``node``.

    It is ready from ``ready_ns`` on, does no work once ``stopping``, and holds its GPUs until ``gone_ns``. Until
    ``saved_ns`` it writes a checkpoint. A ``leaving`` replica works until its replacement is ready, and the replacement
    counts in its place.
    """

    workload: int
    number: int
    name: str
    node: int
    rows: list[int]
    ready_ns: int
    gone_ns: int = NEVER
    saved_ns: int = 0
    leaving: bool = False

    @property
    def stopping(self) -> bool:
        """Whether it is stopping."""
        return self.gone_ns != NEVER


class Rows(NamedTuple):
    """The R placed replicas as arrays, sorted by node: the rows of the workload frames.

    ``starts`` is int64[M + 1] over the nodes, ``of_gpu`` int64[N] the replica of each GPU or R for a free one; the rest
    is [R]. ``number`` is the replica's number within its workload.
    """

    workload: Ints
    number: Ints
    ready_ns: Ints
    saved_ns: Ints
    stopping: NDArray[np.bool_]
    gpus: Ints
    starts: Ints
    of_gpu: Ints


class Placement:
    """Replicas of all workloads; ``wanted`` is the desired number per workload.

    A replica that does not fit stays desired and is placed as soon as there is room, by priority. A gang is placed
    whole or not at all. If a workload has ``shares``, they are the numbers of its replicas that run in each of its
    pools. ``open`` nodes take replicas; ``changed`` nodes have to be announced. ``stale``: the rows must be computed
    again. ``cordoned_by_request`` are GPUs that a client has cordoned.
    """

    def __init__(self, site: Site, workloads: tuple[Demanded, ...]) -> None:
        self.site = site
        self.workloads = workloads
        self.owner = np.full(len(site.node_of), FREE, np.int64)
        self.usable = np.ones(len(site.node_of), np.bool_)
        self.open = np.array([not node.extra for node in site.nodes], np.bool_)
        self.free: NDArray[np.int64] = np.diff(site.starts)
        self.wanted = [0] * len(workloads)
        self.shares: list[list[int] | None] = [None] * len(workloads)
        self.placed: list[list[Replica]] = [[] for _ in workloads]
        self.changed = set[int]()
        self.cordoned_by_request = set[int]()
        self.stale = True

    def live(self, workload: int) -> list[Replica]:
        """Replicas that count: neither stopping nor being replaced."""
        return [r for r in self.placed[workload] if not r.stopping and not r.leaving]

    def find(self, workload: int, name: str) -> Replica:
        """A live replica by name; :class:`RecordError` if there is none."""
        for replica in self.live(workload):
            if replica.name == name:
                return replica
        raise RecordError(f"{self.workloads[workload].name} has no replica {name!r} that runs")

    def check(self, workload: int, replicas: int) -> None:
        """Raise :class:`RecordError` for a number of replicas that the workload cannot have."""
        spec = self.workloads[workload]
        if not 0 <= replicas <= spec.most:
            raise RecordError(f"{spec.name}: {replicas} replicas requested; it takes 0 to {spec.most}")
        if spec.gang and replicas not in (0, spec.most):
            raise RecordError(f"{spec.name}: {replicas} replicas requested; it is a gang and takes 0 or {spec.most}")

    def settle(self, now_ns: int) -> None:
        """Release stopped replicas, then place desired ones that fit, by priority."""
        for placed in self.placed:
            for replica in [r for r in placed if r.gone_ns <= now_ns]:
                placed.remove(replica)
                self._release(replica)
        order = sorted(range(len(self.workloads)), key=lambda w: (-self.workloads[w].priority, w))
        for workload in order:
            self._fill(workload, now_ns)

    def room(self, workload: int, pool: int | None = None) -> int:
        """Number of further replicas that fit now, in one of the workload's pools or in all."""
        spec = self.workloads[workload]
        pools = spec.nodes if pool is None else spec.nodes[pool : pool + 1]
        return sum(int((self._room(nodes) // spec.gpus).sum()) for nodes in pools)

    def start(self, workload: int, node: int, now_ns: int) -> Replica:
        """Place another replica on a node with room; it gets the lowest unused number."""
        spec, placed = self.workloads[workload], self.placed[workload]
        taken = {replica.number for replica in placed}
        number = next(n for n in range(len(taken) + 1) if n not in taken)
        rows = self._take(node, spec.gpus, workload)
        replica = Replica(workload, number, f"{spec.name}-{number}", node, rows, now_ns + spec.cold_start_ns)
        placed.append(replica)
        return replica

    def stop(self, replica: Replica, gone_ns: int) -> None:
        """Stop a replica; it holds its GPUs until ``gone_ns``."""
        replica.gone_ns = min(replica.gone_ns, gone_ns)
        self.stale = True

    def move(self, replica: Replica, node: int, now_ns: int) -> None:
        """Restart a replica on another node, at once and under the same name."""
        self._release(replica)
        spec = self.workloads[replica.workload]
        replica.node, replica.ready_ns = node, now_ns + spec.cold_start_ns
        replica.rows = self._take(node, spec.gpus, replica.workload)

    def node_for(self, workload: int, *, exclude: int | None = None, pool: int | None = None) -> int | None:
        """The fullest node with room, in a pool or in the first pool that has one."""
        spec = self.workloads[workload]
        for nodes in spec.nodes if pool is None else spec.nodes[pool : pool + 1]:
            room = self._room(nodes)
            fits = room >= spec.gpus
            if exclude is not None:
                fits &= nodes != exclude
            if fits.any():
                return int(nodes[np.where(fits, room, np.iinfo(np.int64).max).argmin()])
        return None

    def fits(self, workload: int, node: int) -> bool:
        """Whether a replica fits on a node now."""
        return bool(self.open[node] and self.free[node] >= self.workloads[workload].gpus)

    def cordon(self, row: int, *, lost: bool = False) -> None:
        """Place nothing on a GPU from now on, because it is ``lost`` or a client cordoned it; its replica stays."""
        if not lost:
            self.cordoned_by_request.add(row)
        if self.usable[row]:
            self.usable[row] = False
            self.changed.add(int(self.site.node_of[row]))
            if self.owner[row] == FREE:
                self.free[self.site.node_of[row]] -= 1
            node = int(self.site.node_of[row])
            if not self.usable[self.site.starts[node] : self.site.starts[node + 1]].any():
                self.close(node)

    def uncordon(self, row: int) -> None:
        """Let a GPU, and its node, accept replicas again."""
        node = int(self.site.node_of[row])
        self.cordoned_by_request.discard(row)
        if not self.usable[row]:
            self.usable[row] = True
            self.free[node] += self.owner[row] == FREE
            self.changed.add(node)
        if not self.open[node]:
            self.open[node] = True
            self.changed.add(node)

    def is_held(self, row: int) -> bool:
        """Whether a GPU has a replica."""
        return bool(self.owner[row] != FREE)

    def close(self, node: int) -> None:
        """Place nothing on a node from now on; its replicas stay."""
        if self.open[node]:
            self.open[node] = False
            self.changed.add(node)

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
        self.stale = False
        return Rows(
            workload=np.array([r.workload for r in replicas], np.int64),
            number=np.array([r.number for r in replicas], np.int64),
            ready_ns=np.array([r.ready_ns for r in replicas], np.int64),
            saved_ns=np.array([r.saved_ns for r in replicas], np.int64),
            stopping=np.array([r.stopping for r in replicas], np.bool_),
            gpus=np.array([len(r.rows) for r in replicas], np.int64),
            starts=np.concatenate([np.zeros(1, np.int64), np.cumsum(per_node)]),
            of_gpu=of_gpu,
        )

    def _sorted(self) -> list[Replica]:
        return sorted((r for placed in self.placed for r in placed), key=lambda r: (r.node, r.rows))

    def _room(self, nodes: Ints) -> Ints:
        return np.where(self.open[nodes], self.free[nodes], 0)

    def missing(self, workload: int) -> list[tuple[int, int | None]]:
        """Number of desired replicas without a place, per pool (``None``: any pool)."""
        shares, live = self.shares[workload], self.live(workload)
        if shares is None:
            found: list[tuple[int, int | None]] = [(self.wanted[workload] - len(live), None)]
        else:
            pools = self.workloads[workload].nodes
            there = [sum(replica.node in nodes for replica in live) for nodes in pools]
            found = [(share - count, p) for p, (share, count) in enumerate(zip(shares, there, strict=True))]
        return [(count, pool) for count, pool in found if count > 0]

    def _fill(self, workload: int, now_ns: int) -> None:
        for missing, pool in self.missing(workload):
            if self.workloads[workload].gang and self.room(workload, pool) < missing:
                return
            for _ in range(missing):
                node = self.node_for(workload, pool=pool)
                if node is None:
                    break
                self.start(workload, node, now_ns)

    def _take(self, node: int, count: int, workload: int) -> list[int]:
        first, end = int(self.site.starts[node]), int(self.site.starts[node + 1])
        open_rows = (self.owner[first:end] == FREE) & self.usable[first:end]
        rows: list[int] = (np.flatnonzero(open_rows)[:count] + first).tolist()
        self.owner[rows] = workload
        self.free[node] -= count
        self.changed.add(node)
        self.stale = True
        return rows

    def _release(self, replica: Replica) -> None:
        self.owner[replica.rows] = FREE
        self.free[replica.node] += int(self.usable[replica.rows].sum())
        self.changed.add(replica.node)
        self.stale = True
