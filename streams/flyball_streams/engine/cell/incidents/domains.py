"""Racks and leaf switches: which nodes share one, and how many must fail together to rule out coincidence.

Of n nodes that each fail ``rate`` times a day, k fail within ``w`` days of each other by chance some ``C(n, k) k rate^k
w^(k-1)`` times a day. With one such fault per node and month, two of seven nodes of a rack fail within a minute once in
85 years, three of 32 nodes of a leaf switch once in 10,000; ``bench/faults_gpu.py`` counts them at higher rates.
"""

from collections.abc import Iterator, Mapping

from flyball_contracts.records import Cause, Inventory
from flyball_contracts.records.incidents import Level
from flyball_streams.engine.fleet_index import FleetIndex

SHARED_BY: Mapping[Cause, tuple[Level, ...]] = {
    "power": ("rack",),
    "thermal": ("rack",),
    "network": ("leaf", "rack"),
    "telemetry": ("leaf", "rack"),
}
"""Failures that a rack or a leaf switch can cause for all of its nodes, the likelier place first."""
WIDE: frozenset[Level] = frozenset({"rack", "leaf"})
MOST_NEEDED = 3
SMALL = 8
"""In a rack or on a leaf switch with fewer nodes than this, two that fail together are enough."""
Domain = tuple[Level, str]


class Domains:
    """Racks and leaf switches of a cell, as its inventories name them."""

    def __init__(self, cell: str, directory: FleetIndex) -> None:
        self.cell = cell
        self.directory = directory
        self._seen: tuple[FleetIndex, int] | None = None
        self._nodes: dict[Domain, set[str]] = {}

    def of(self, node: str, cause: Cause) -> Iterator[Domain]:
        """Domains of a node that can have a cause, the likelier first; for the network only the switch, if known."""
        levels = SHARED_BY.get(cause)
        inventory = self.directory.inventories.get(node) if levels else None
        for level in levels or () if inventory is not None else ():
            name = _name(inventory, level)
            if name:
                yield level, name
                if cause == "network":
                    return  # two nodes do not point at their rack while their switch has more

    def nodes(self, domain: Domain) -> set[str]:
        """Names of the schedulable nodes in a domain whose agents run."""
        seen = self.directory, self.directory.version
        if seen != self._seen:
            self._seen, self._nodes = seen, {}
            for inventory in self.directory.nodes(self.cell):
                for level in WIDE:
                    if (name := _name(inventory, level)) and inventory.schedulable and inventory.agent == "running":
                        self._nodes.setdefault((level, name), set()).add(inventory.node)
        return self._nodes.get(domain, set())

    def is_enough(self, domain: Domain, nodes: set[str], *, silent: bool) -> bool:
        """Whether enough nodes of a domain fail together for a fault of the domain; if ``silent``, all nodes must."""
        if len(nodes) < 2:
            return False
        known = self.nodes(domain)
        if silent:
            return len(known & nodes) >= 2 and known <= nodes  # nodes that stopped on purpose do not count
        return len(nodes) >= (MOST_NEEDED if len(known | nodes) >= SMALL else 2)


def _name(inventory: Inventory | None, level: Level) -> str:
    if inventory is None:
        return ""
    return inventory.rack if level == "rack" else inventory.leaf
