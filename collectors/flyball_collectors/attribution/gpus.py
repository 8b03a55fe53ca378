"""Inputs of the division from the NVML collector's last read."""

import re
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from flyball_collectors.attribution.shares import Devices, Floats, Shares
from flyball_collectors.base import Parts, Reading
from flyball_collectors.nvml.readings.processes import Process
from flyball_contracts.metrics import GPU
from flyball_contracts.records import Device

_BUSY_S = GPU.column("nvidia.gpu.busy.time")
# Used where the driver keeps no samples, as for MIG instances; the first known one counts.
_BUSY_SHARES = [
    GPU.column(key)
    for key in ("hw.gpu.utilization{task=general}", "nvidia.gpu.graphics.activity", "nvidia.gpu.sm.activity")
]
_ENERGY, _USED, _LIMIT = (GPU.column(key) for key in ("hw.energy", "hw.gpu.memory.usage", "hw.gpu.memory.limit"))
_PROFILE = re.compile(r"(?:(\d+)c\.)?(\d+)g\.")
_FOUR_SLICES = re.compile(r"\bA30\b|\bRTX PRO 6000\b")
_SLICES = 7
_IDLE = 0.999  # of the period
_FORGETS = 0.1


class Gpus(Protocol):
    """Interface to the devices; the NVML collector implements it."""

    @property
    def latest(self) -> Reading | None:
        """The ``GPU`` reading of this tick, with a row for each device of :meth:`parts`; ``None`` without one."""
        ...

    def parts(self) -> Parts:
        """The devices."""
        ...

    def processes(self) -> Sequence[Process]:
        """The processes on them, at this tick."""
        ...


class IdlePower:
    """Estimates the idle power of each GPU from periods without work."""

    def __init__(self) -> None:
        self._watts: dict[str, float] = {}

    def of(self, devices: Sequence[Device]) -> Floats:
        """Idle power of each device in watts, NaN without an idle period."""
        return np.array([self._watts.get(device.id, np.nan) for device in devices], np.float64)

    def update(self, devices: Sequence[Device], energy_j: Floats, shares: Shares, period_s: float) -> None:
        """Add one period; earlier ones fade."""
        idle = (shares.sm_s[:, 2] >= _IDLE * period_s) & np.isfinite(energy_j)
        for device, is_idle, energy in zip(devices, idle.tolist(), energy_j.tolist(), strict=True):
            if is_idle:
                known = self._watts.get(device.id, energy / period_s)
                self._watts[device.id] = known + _FORGETS * (energy / period_s - known)


def devices_of(devices: Sequence[Device], values: Floats, idle_w: Floats, period_s: float) -> Devices:
    """The devices of a reading ``[D, metrics]``, as input of the division."""
    busy = values[:, _BUSY_S]
    for column in _BUSY_SHARES:
        busy = np.where(np.isnan(busy), values[:, column] * period_s, busy)
    rows = {device.id: row for row, device in enumerate(devices)}
    return Devices(
        busy,
        values[:, _ENERGY],
        values[:, _USED],
        values[:, _LIMIT],
        idle_w,
        np.array([rows.get(device.parent or "", -1) for device in devices], np.int64),
        np.array([part_of(device) for device in devices], np.float64),
    )


def part_of(device: Device) -> float:
    """A MIG instance's share of its GPU's SMs, by the slices in its profile; 1 for a GPU."""
    if device.parent is None:
        return 1.0
    profile = _PROFILE.match(device.mig_profile or "")
    slices = int(profile[1] or profile[2]) if profile else 1
    return slices / (4 if _FOUR_SLICES.search(device.model) else _SLICES)
