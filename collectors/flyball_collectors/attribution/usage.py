"""Rows of the ``USAGE`` layout: use of the host by units, and their shares of the devices."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from flyball_collectors.attribution.shares import Shares
from flyball_collectors.attribution.units import Key, Unit
from flyball_collectors.base import NAN, Counters, Values, fill_row
from flyball_collectors.host.cgroup_v1 import reader_of
from flyball_contracts.metrics import USAGE

_SM_TIME, _ENERGY, _MEMORY, _PROCESSES = (
    USAGE.column(f"nvidia.gpu.workload.{name}") for name in ("sm.time", "energy", "memory.usage", "process.count")
)


class UsageMeter:
    """Accumulates the units' shares of the devices, and reads their control groups when a row is due."""

    def __init__(self, root: Path) -> None:
        self._groups = reader_of(root)
        self._counters: dict[Key, Counters] = {}
        self._devices: dict[Key, list[float]] = {}

    def add(self, units: Mapping[Key, Unit], shares: Shares | None) -> None:
        """Add a tick; ``shares`` has the units as owners, in their order, ``None`` if unknown."""
        devices: dict[Key, list[float]] = {}
        for place, (key, unit) in enumerate(units.items()):
            if not unit.devices:
                continue
            sm_s, energy_j = self._devices.get(key, [0.0, 0.0])[:2]
            if shares is None:
                devices[key] = [NAN] * 4
            else:
                devices[key] = [
                    sm_s + float(shares.owner_sm_s[place]),
                    energy_j + float(shares.owner_energy_j[place]),
                    float(shares.owner_memory[place]),
                    float(shares.owner_processes[place]),
                ]
        self._devices = devices

    def take(self, units: Mapping[Key, Unit]) -> dict[Key, NDArray[np.float32]]:
        """A row for each unit, since the last call; device values are NaN for a unit without devices."""
        self._counters = {key: self._counters.get(key) or Counters() for key in units}
        rows = {key: self._row(key, unit) for key, unit in units.items()}
        self._devices = {}
        return rows

    def _row(self, key: Key, unit: Unit) -> NDArray[np.float32]:
        found: Values = self._groups.read(unit.folder) if unit.folder else {}
        row = fill_row(USAGE, found, self._counters[key])
        row[[_SM_TIME, _ENERGY, _MEMORY, _PROCESSES]] = self._devices.get(key, NAN)
        return row
