"""The power limits that inventories showed of the GPUs where a workload runs."""

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from flyball_contracts.records import Inventory

_LOG = logging.getLogger(__name__)
MOST_W = 2000.0
"""No GPU takes more; an inventory that shows more is wrong."""
KEPT_DAYS = 7
"""A limit that was lowered may be raised to its former value for this many days."""
_DAY_NS = 86_400_000_000_000


class _Largest(NamedTuple):
    """The largest limit of a GPU that counts, and the day on which a lower one was first shown, if one is shown now."""

    limit_w: float
    lowered_day: int | None


class PowerLimits:
    """Power limits in W. Inventories show the present limit, which may have been lowered, so the largest one counts.

    It counts for ``KEPT_DAYS`` after it was lowered. A limit above the known one counts once two inventories in a row
    show it; a limit above ``MOST_W`` never counts. With a ``path`` the largest limits survive a restart. A file that
    cannot be read or written is logged and ignored: limits are then bounded by what inventories show now, which is
    never more.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path, self._changed = path, False
        self._largest = {} if path is None else _read(path)
        self._claims: dict[str, float] = {}
        self._made: Mapping[str, Mapping[str, float]] | None = {}

    def see(self, inventory: Inventory, before: Inventory | None = None) -> None:
        """Add a new inventory of a node, and the one ``before`` it."""
        differs = before is None or (before.cell, before.allocations) != (inventory.cell, inventory.allocations)
        for device in inventory.devices:
            limit_w = device.power_limit_w
            if limit_w is not None and 0.0 < limit_w <= MOST_W:
                differs |= self._see(device.id, limit_w, inventory.time_ns)
        if differs or (before is not None and len(before.devices) != len(inventory.devices)):
            self._made = None

    def _see(self, device: str, limit_w: float, now_ns: int) -> bool:
        """Add the limit that a device shows; return whether the limit that counts, or its day, has changed."""
        known, today = self._largest.get(device), now_ns // _DAY_NS
        claimed_w = self._claims.pop(device, 0.0)
        lowered_day: int | None = None
        if known is None:
            counts = limit_w
        elif limit_w > known.limit_w:
            self._claims[device] = limit_w
            counts = max(known.limit_w, min(limit_w, claimed_w))  # the next inventory has to show it, too
        elif limit_w < known.limit_w and (known.lowered_day is None or abs(today - known.lowered_day) <= KEPT_DAYS):
            counts, lowered_day = known.limit_w, today if known.lowered_day is None else known.lowered_day
        else:
            counts = limit_w
        if known == (counts, lowered_day):
            return False
        self._largest[device], self._changed = _Largest(counts, lowered_day), True
        return True

    def changed(self) -> None:
        """Note that a node is gone."""
        self._made = None

    def by_workload(self, inventories: Mapping[str, Inventory]) -> Mapping[str, Mapping[str, float]]:
        """Largest limit by cell and workload, over all GPUs of its nodes; absent where unknown."""
        made = self._made
        if made is None:
            found: dict[str, dict[str, float]] = {}
            for node in inventories.values():
                known = (self._largest[device.id].limit_w for device in node.devices if device.id in self._largest)
                most_w = max(known, default=0.0)
                of_cell = found.setdefault(node.cell, {})
                for part in node.allocations if most_w else ():
                    of_cell[part.workload] = max(most_w, of_cell.get(part.workload, 0.0))
            made = self._made = found
            if self._changed and self._path is not None:  # once for all inventories that a start reads
                _write(self._path, self._largest)
                self._changed = False
        return made


def _read(path: Path) -> dict[str, _Largest]:
    try:
        found = msgspec.json.decode(path.read_bytes(), type=dict[str, float | tuple[float, int | None]])
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.DecodeError) as error:
        _LOG.warning("%s: the largest power limits cannot be read: %s; they are collected again", path, error)
        return {}
    known = {device: _Largest(*one) if isinstance(one, tuple) else _Largest(one, None) for device, one in found.items()}
    return {device: one for device, one in known.items() if 0 < one.limit_w <= MOST_W}


def _write(path: Path, largest: Mapping[str, _Largest]) -> None:
    fresh = path.with_name(f"{path.name}.new")
    try:
        fresh.write_bytes(msgspec.json.encode(largest))
        os.replace(fresh, path)
    except OSError as error:
        _LOG.warning("%s: the largest power limits cannot be kept: %s; a restart forgets them", path, error)
