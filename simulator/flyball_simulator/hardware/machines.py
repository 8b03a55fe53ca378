"""Machines that are bought and returned: by a cluster autoscaler's rule, or on request."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from flyball_contracts.config import NodePool
from flyball_contracts.errors import RecordError
from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import Pool, SubjectState
from flyball_simulator.cell.placement import Placement
from flyball_simulator.hardware.site import Site


class Machines:
    """Which nodes are present: decided by a cluster autoscaler or, for managed pools, requested by decisions.

    ``present`` is [M]. ``arrived`` and ``left`` are the nodes that changed in the last :meth:`advance`. ``managed`` are
    the nodes of each managed pool by name, and ``versions`` count the requests to it. With ``by_rule`` no pool is
    managed.
    """

    def __init__(self, site: Site, placement: Placement, *, by_rule: bool = False) -> None:
        self._site, self._placement = site, placement
        self.managed: dict[str, list[int]] = {}
        for i, node in enumerate(site.nodes):
            if node.pool.managed and not by_rule:
                self.managed.setdefault(node.pool.name, []).append(i)
        self.versions = dict.fromkeys(self.managed, 1)
        self._autoscaled = np.ones(len(site.nodes), np.bool_)
        for nodes in self.managed.values():
            self._autoscaled[nodes] = False
        self._leaving: set[int] = set()
        self.extra = np.array([node.extra for node in site.nodes], np.bool_)
        self.present: NDArray[np.bool_] = ~self.extra
        self.arrived: list[int] = []
        self.left: list[int] = []
        self.away: set[int] = set()
        self._due_ns: dict[int, int] = {}
        self._empty_ns: dict[int, int] = {}

    def reclaim(self, away: set[int]) -> list[int]:
        """Remove the machines in ``away``, which cannot be bought meanwhile, and return those that were present.

        A machine that is no longer in the set comes back by itself if it was present at the start and its pool is not
        managed; any other can be bought again.
        """
        taken = sorted(node for node in away - self.away if self.present[node])
        for node in taken:
            self._placement.open[node] = False
            self._leaving.add(node)
            self._empty_ns.pop(node, None)
        for node in away:
            self._due_ns.pop(node, None)
        for node in sorted(self.away - away):
            if not self.extra[node] and self._autoscaled[node]:
                self._due_ns[node] = 0
        self.away = away
        return taken

    def advance(self, now_ns: int) -> None:
        """Add machines that are due, return those that have been empty for long, and buy for replicas without room."""
        self.arrived = [node for node, due_ns in self._due_ns.items() if due_ns <= now_ns]
        for node in self.arrived:
            del self._due_ns[node]
            self.present[node] = self._placement.open[node] = True
            self._placement.changed.add(node)
        self.left = sorted(self._leaving)
        for node in self.left:
            self.present[node] = False
        self._leaving.clear()
        if (self.extra & self._autoscaled).any():
            self._return(now_ns)
            self._buy(now_ns)

    def pool(self, name: str) -> NodePool:
        """A managed pool; :class:`RecordError` for any other."""
        if name not in self.managed:
            raise RecordError(f"the fleet has no pool {name!r} that is managed; set managed in its configuration")
        return self._site.nodes[self.managed[name][0]].pool

    def requested(self, name: str) -> int:
        """Machines of a managed pool that are present or ordered, without those that leave."""
        return sum((self.present[n] or n in self._due_ns) and n not in self._leaving for n in self.managed[name])

    def observe(self, name: str) -> SubjectState:
        """State of a managed pool, with the cost of the requested machines of all managed pools."""
        cost = sum(self.requested(one) * (self.pool(one).price_usd_per_hour or 0.0) for one in self.managed)
        return SubjectState(
            replicas=self.requested(name),
            ready=int(self.present[self.managed[name]].sum()),
            version=str(self.versions[name]),
            cost_usd_per_hour=round(cost, 6),
        )

    def idle(self, name: str) -> list[int]:
        """Machines of a managed pool without replicas: ordered ones first, then the youngest."""
        coming = [node for node in self.managed[name] if node in self._due_ns]
        here = [n for n in self.managed[name] if self.present[n] and n not in self._leaving and not self._is_busy(n)]
        return [*reversed(coming), *reversed(here)]

    def resize(self, name: str, machines: int, victims: Sequence[int], now_ns: int) -> None:
        """Set the number of machines: new ones arrive ``provision_s`` later, ``victims`` leave at the next tick."""
        self.versions[name] += 1
        for node in victims:
            if self._due_ns.pop(node, None) is None:
                self._placement.open[node] = False
                self._leaving.add(node)
        due_ns = now_ns + math.ceil(self.pool(name).provision_s * NS_PER_S)
        for node in self.managed[name]:
            if self.requested(name) >= machines:
                break
            if not self.present[node] and node not in self._due_ns and node not in self.away:
                self._due_ns[node] = due_ns

    def records(self, cell: str, time_ns: int) -> list[Pool]:
        """The managed pools, as records to publish."""
        found: list[Pool] = []
        for name, nodes in self.managed.items():
            node, pool = self._site.nodes[nodes[0]], self.pool(name)
            found.append(
                Pool(
                    pool=name,
                    cell=cell,
                    time_ns=time_ns,
                    platform="simulated",
                    instance_type=pool.instance_type,
                    market="spot" if pool.capacity_type == "spot" else "on_demand",
                    min_machines=pool.nodes,
                    max_machines=len(nodes),
                    price_usd_per_hour=pool.price_usd_per_hour or 0.0,
                    gpu_model=node.sku.model,
                    gpus=len(node.devices),
                    start_s=pool.provision_s,
                )
            )
        return found

    def _is_busy(self, node: int) -> bool:
        first, end = self._site.starts[node : node + 2].tolist()
        return bool((self._placement.owner[first:end] >= 0).any())

    def _return(self, now_ns: int) -> None:
        for node in np.flatnonzero(self.extra & self.present & self._autoscaled).tolist():
            if self._is_busy(node):
                self._empty_ns.pop(node, None)
                continue
            since_ns = self._empty_ns.setdefault(node, now_ns)
            if now_ns - since_ns >= round(self._site.nodes[node].pool.return_after_s * NS_PER_S):
                del self._empty_ns[node]
                self.present[node] = self._placement.open[node] = False
                self.left.append(node)

    def _buy(self, now_ns: int) -> None:
        placement, coming = self._placement, set(self._due_ns)
        for w, spec in enumerate(placement.workloads):
            for count, pool in placement.missing(w):
                gpus = (count - placement.room(w, pool)) * spec.gpus if spec.gang else count * spec.gpus
                for nodes in spec.nodes if pool is None else spec.nodes[pool : pool + 1]:
                    size = int(self._site.starts[nodes[0] + 1] - self._site.starts[nodes[0]]) if len(nodes) else 1
                    usable = size // spec.gpus * spec.gpus
                    absent: list[int] = nodes[
                        self.extra[nodes] & ~self.present[nodes] & self._autoscaled[nodes]
                    ].tolist()
                    for node in absent:
                        if node in self.away:
                            continue
                        if gpus <= 0:
                            break
                        gpus -= usable
                        if node not in coming:
                            provision_s = self._site.nodes[node].pool.provision_s
                            self._due_ns[node] = now_ns + math.ceil(provision_s * NS_PER_S)
                        coming.discard(node)
