"""The shape of a pool's machines, the nodes of each pool, and how many GPUs of a machine a replica takes."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from flyball_contracts.records import Inventory, Pool, WorkloadSpec
from flyball_streams.engine.cell.actions.limits import SLACK, accepts, per_replica
from flyball_streams.engine.cell.placement import whole
from flyball_streams.engine.fleet_index import FleetIndex
from flyball_streams.engine.offers import is_machine_of


class Shape(NamedTuple):
    """GPUs of one model that a machine has."""

    model: str
    gpus: int

    def replicas(self, spec: WorkloadSpec) -> int:
        """Replicas of a workload that one machine has room for; 0: it does not fit."""
        needs = needed(spec)
        return math.floor(self.gpus / needs + SLACK) if needs and accepts(spec, self.model) else 0


class Machines:
    """Nodes of a cell by pool; computed again when the tables change.

    A node belongs to the first pool, by name, that it is a machine of (:func:`is_machine_of`). Nodes without devices
    are left out.
    """

    def __init__(self, directory: FleetIndex, cell: str) -> None:
        self.directory = directory
        self.cell = cell
        self._version = -1
        self._pools: dict[str, Pool] = {}
        self._nodes: dict[str, list[Inventory]] = {}

    @property
    def pools(self) -> dict[str, Pool]:
        """Pools of the cell by name, in the order of their names."""
        self._renew()
        return self._pools

    def nodes(self, pool: str) -> list[Inventory]:
        """Machines of a pool that exist, by name."""
        self._renew()
        return self._nodes.get(pool, [])

    def _renew(self) -> None:
        if self._version == self.directory.version:
            return
        self._version = self.directory.version
        known = self.directory.pools
        self._pools = {name: known[name] for name in sorted(known) if known[name].cell == self.cell}
        self._nodes = {}
        for node in self.directory.nodes(self.cell) if self._pools else ():
            for name, pool in self._pools.items():
                if node.devices and is_machine_of(node, pool.market, pool.instance_type, pool.zones):
                    self._nodes.setdefault(name, []).append(node)
                    break


def needed(spec: WorkloadSpec) -> float:
    """GPUs of a machine that a replica takes; a shared GPU is divided evenly among the replicas that fit on it."""
    gpus = per_replica(spec)
    if gpus <= 0:
        return 0.0
    return 1.0 / math.floor(1.0 / gpus + SLACK) if gpus < 1 - SLACK else float(whole(gpus))


def seen_shape(nodes: Sequence[Inventory]) -> Shape | None:
    """Shape of the largest machine that exists."""
    found = [
        Shape(model, gpus)
        for node in nodes
        for model, gpus in Counter(d.model for d in node.devices if not d.mig_enabled and d.parent is None).items()
    ]
    return max(found, key=lambda shape: (shape.gpus, shape.model), default=None)
