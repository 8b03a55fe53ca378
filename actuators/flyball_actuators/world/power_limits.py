"""The largest power limit that inventories ever showed of the GPUs where a workload runs."""

import logging
import math
import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from flyball_contracts.records import Inventory

_LOG = logging.getLogger(__name__)


class PowerLimits:
    """Power limits in W. Inventories show the present limit, which may have been lowered, so the largest one counts.

    With a ``path`` the largest limits survive a restart. A file that cannot be read or written is logged and ignored:
    limits are then bounded by what inventories show now, which is never more.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path, self._raised = path, False
        self._largest_w = {} if path is None else _read(path)
        self._made: Mapping[str, Mapping[str, float]] | None = {}

    def see(self, inventory: Inventory) -> None:
        """Add a new inventory of a node."""
        for device in inventory.devices:
            limit_w = device.power_limit_w
            if limit_w is not None and self._largest_w.get(device.id, 0.0) < limit_w < math.inf:
                self._largest_w[device.id] = limit_w
                self._raised = True
        self._made = None

    def changed(self) -> None:
        """Note that a node is gone."""
        self._made = None

    def by_workload(self, inventories: Mapping[str, Inventory]) -> Mapping[str, Mapping[str, float]]:
        """Largest limit by cell and workload, over all GPUs of its nodes; absent where unknown."""
        made = self._made
        if made is None:
            found: dict[str, dict[str, float]] = {}
            for node in inventories.values():
                most_w = max((self._largest_w.get(device.id, 0.0) for device in node.devices), default=0.0)
                of_cell = found.setdefault(node.cell, {})
                for part in node.allocations if most_w else ():
                    of_cell[part.workload] = max(most_w, of_cell.get(part.workload, 0.0))
            made = self._made = found
            if self._raised and self._path is not None:  # once for all that a start brings
                _write(self._path, self._largest_w)
                self._raised = False
        return made


def _read(path: Path) -> dict[str, float]:
    try:
        found = msgspec.json.decode(path.read_bytes(), type=dict[str, float])
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.DecodeError) as error:
        _LOG.warning("%s: the largest power limits cannot be read: %s; they are collected again", path, error)
        return {}
    return {device: limit_w for device, limit_w in found.items() if 0 < limit_w < math.inf}


def _write(path: Path, largest_w: Mapping[str, float]) -> None:
    fresh = path.with_name(f"{path.name}.new")
    try:
        fresh.write_bytes(msgspec.json.encode(largest_w))
        os.replace(fresh, path)
    except OSError as error:
        _LOG.warning("%s: the largest power limits cannot be kept: %s; a restart forgets them", path, error)
