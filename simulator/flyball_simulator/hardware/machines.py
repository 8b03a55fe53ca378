"""Machines that come and go: bought when something finds no room, returned when they are empty."""

import math

import numpy as np
from numpy.typing import NDArray

from flyball_contracts.ids import NS_PER_S
from flyball_simulator.cell.placement import Placement
from flyball_simulator.hardware.site import Site


class Machines:
    """Which nodes are there, as a cluster autoscaler has it.

    ``present`` is [M]. ``arrived`` and ``left`` are the nodes that came and went with the last :meth:`advance`.
    """

    def __init__(self, site: Site, placement: Placement) -> None:
        self._site, self._placement = site, placement
        self.extra = np.array([node.extra for node in site.nodes], np.bool_)
        self.present: NDArray[np.bool_] = ~self.extra
        self.arrived: list[int] = []
        self.left: list[int] = []
        self._due_ns: dict[int, int] = {}
        self._empty_ns: dict[int, int] = {}

    def advance(self, now_ns: int) -> None:
        """Let in what is due, return what has been empty for long, and buy for what finds no room."""
        self.arrived = [node for node, due_ns in self._due_ns.items() if due_ns <= now_ns]
        for node in self.arrived:
            del self._due_ns[node]
            self.present[node] = self._placement.open[node] = True
            self._placement.changed.add(node)
        self.left = []
        if self.extra.any():
            self._return(now_ns)
            self._buy(now_ns)

    def _return(self, now_ns: int) -> None:
        for node in np.flatnonzero(self.extra & self.present).tolist():
            first, end = self._site.starts[node : node + 2].tolist()
            if (self._placement.owner[first:end] >= 0).any():
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
                    absent: list[int] = nodes[self.extra[nodes] & ~self.present[nodes]].tolist()
                    for node in absent:
                        if gpus <= 0:
                            break
                        gpus -= usable
                        if node not in coming:
                            provision_s = self._site.nodes[node].pool.provision_s
                            self._due_ns[node] = now_ns + math.ceil(provision_s * NS_PER_S)
                        coming.discard(node)
