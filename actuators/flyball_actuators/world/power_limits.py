"""The largest power limit that inventories ever showed of the GPUs where a workload runs."""

import math
from collections.abc import Mapping

from flyball_contracts.records import Inventory


class PowerLimits:
    """Limits in W. An inventory shows the present one, which may have been lowered, so the largest ever seen counts."""

    def __init__(self) -> None:
        self._largest_w: dict[str, float] = {}
        self._made: Mapping[str, Mapping[str, float]] | None = {}

    def see(self, inventory: Inventory) -> None:
        """Take a new inventory of a node."""
        for device in inventory.devices:
            limit_w = device.power_limit_w
            if limit_w is not None and 0 < limit_w < math.inf:
                self._largest_w[device.id] = max(limit_w, self._largest_w.get(device.id, 0.0))
        self._made = None

    def changed(self) -> None:
        """A node is gone."""
        self._made = None

    def by_workload(self, inventories: Mapping[str, Inventory]) -> Mapping[str, Mapping[str, float]]:
        """By cell and workload, over all GPUs of the nodes where it runs; nothing where none is known."""
        made = self._made
        if made is None:
            found: dict[str, dict[str, float]] = {}
            for node in inventories.values():
                most_w = max((self._largest_w.get(device.id, 0.0) for device in node.devices), default=0.0)
                of_cell = found.setdefault(node.cell, {})
                for part in node.allocations if most_w else ():
                    of_cell[part.workload] = max(most_w, of_cell.get(part.workload, 0.0))
            made = self._made = found
        return made
