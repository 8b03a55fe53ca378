"""Noisy neighbours: a workload with less than half of a node's GPUs that uses most of a contended resource.

A node whose tasks wait for CPU may simply have too few CPUs for its work. A neighbour is the cause if one workload uses
at least half of what all containers use and holds less than half of the GPUs in use.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flyball_contracts.ids import NS_PER_S
from flyball_contracts.metrics import USAGE
from flyball_contracts.records import Evidence, Inventory

RESOURCES = {
    "cpu": ("container.cpu.time",),
    "io": ("container.disk.io{direction=read}", "container.disk.io{direction=write}"),
}
"""Contended resources, and the counters of their use."""
UNITS = {"cpu": "{cpu}", "io": "By/s"}
COLUMNS = {resource: [USAGE.column(key) for key in keys] for resource, keys in RESOURCES.items()}
LEAST = 0.5
RECENT_NS = 300 * NS_PER_S
"""Age limit of a report; agents report use about once a minute."""


class Neighbours:
    """Use of each node's resources by workload, per second; ``at_ns`` is the time of the report."""

    def __init__(self) -> None:
        self.used: dict[str, dict[str, dict[str, float]]] = {}
        self.at_ns: dict[str, int] = {}

    def note(self, inventory: Inventory, values: NDArray[np.float32], period_s: float, at_ns: int) -> None:
        """Store the use by a node's replicas in a period, [allocations, metrics]."""
        used: dict[str, dict[str, float]] = {}
        for resource, columns in COLUMNS.items():
            each = np.nansum(values[:, columns], axis=1) / period_s
            of = used[resource] = {}
            for allocation, use in zip(inventory.allocations, each.tolist(), strict=True):
                of[allocation.workload] = of.get(allocation.workload, 0.0) + use
        self.used[inventory.node], self.at_ns[inventory.node] = used, at_ns

    def keep(self, nodes: dict[str, Inventory]) -> None:
        """Drop nodes that are gone."""
        self.used = {node: used for node, used in self.used.items() if node in nodes}
        self.at_ns = {node: at_ns for node, at_ns in self.at_ns.items() if node in nodes}

    def noisy_neighbour(self, inventory: Inventory, resource: str, now_ns: int) -> Evidence | None:
        """Evidence of the workload that takes a resource from others; expected is its share by GPUs."""
        node = inventory.node
        used = self.used.get(node, {}).get(resource, {})
        total = sum(used.values())
        if total <= 0.0 or not 0 <= now_ns - self.at_ns[node] < RECENT_NS:
            return None
        name = max(sorted(used), key=lambda workload: used[workload])
        held: dict[str, int] = {}
        for a in inventory.allocations:
            held[a.workload] = held.get(a.workload, 0) + len(a.devices)
        own, of_all = held.get(name, 0), sum(held.values())
        if used[name] < LEAST * total or 2 * own >= of_all:
            return None
        key = RESOURCES[resource][0].partition("{")[0]
        return Evidence(
            name=f"{key}{{workload={name}}}", value=used[name], expected=total * own / of_all, unit=UNITS[resource]
        )

    def state(self) -> dict[str, Any]:
        """State for a snapshot."""
        return {"used": self.used, "at_ns": self.at_ns}

    def load(self, state: dict[str, Any]) -> None:
        """Replace the state by that of a snapshot."""
        self.used, self.at_ns = dict(state["used"]), dict(state["at_ns"])
