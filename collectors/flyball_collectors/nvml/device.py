"""One GPU: its identity, and one row of the ``GPU`` layout."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flyball_collectors.base import NAN, Counters, fill_row
from flyball_collectors.kernel import text_of
from flyball_collectors.nvml.fields import FieldReader
from flyball_collectors.nvml.gate import DeviceLost, Gate
from flyball_collectors.nvml.samples import UtilizationRing
from flyball_collectors.nvml.values import implausible, too_fast
from flyball_contracts.metrics import GPU
from flyball_contracts.records import Device

_LOG = logging.getLogger(__name__)

# Constants of nvml.h.
_MEMORY_V2 = 0x02000028
_DIE = 0  # nvmlTemperatureSensors_t
_SM, _MEM = 1, 2  # nvmlClockType_t
_PSTATE_UNKNOWN = 32
_BY_POWER = 0x04 | 0x80  # software power cap, hardware power brake
_BY_HEAT = 0x20 | 0x40  # software and hardware thermal slowdown
_COUNTERS = [(key, column) for key, column in GPU.columns.items() if GPU.metrics[column].instrument == "counter"]


class GpuReader:
    """Reads one GPU. ``lost`` is true while it does not answer; ``rejected`` counts values that could not be true."""

    def __init__(self, gate: Gate, device: Device) -> None:
        self.gate = gate
        self.device = device
        self.lost = False
        self.rejected: dict[str, int] = {}
        self._start()

    def _start(self) -> None:
        self._counters = Counters()
        self._ring = UtilizationRing()
        self._fields = FieldReader()

    @property
    def resets(self) -> int:
        """Counters that went down so far."""
        return self._counters.resets

    def read(self, period_ns: int) -> NDArray[np.float32]:
        """One row; all NaN when the device is lost, which ``lost`` then says."""
        try:
            found = self._ask()
        except DeviceLost as error:
            if not self.lost:
                _LOG.warning("GPU %s does not answer (%s); its row is empty until it does", self.device.id, error)
                self._start()
            self.lost = True
            return np.full(len(GPU), np.nan, np.float32)
        self.lost = False
        for key in implausible(found):
            self._reject(key, found.pop(key))
        row = fill_row(GPU, found, self._counters)
        for key, column in _COUNTERS:
            if too_fast(key, float(row[column]), period_ns / 1e9):
                self._reject(key, float(row[column]))
                row[column] = NAN
        return row

    def _ask(self) -> dict[str, float]:
        gate = self.gate
        found = self._fields.read(gate)
        rates = gate.ask("nvmlDeviceGetUtilizationRates")
        if rates is not None:
            found["hw.gpu.utilization{task=general}"] = rates.gpu / 100
            found["nvidia.gpu.memory.controller.utilization"] = rates.memory / 100
        found |= self._ring.read(gate)
        _put(found, "hw.gpu.utilization{task=encoder}", _head(gate.ask("nvmlDeviceGetEncoderUtilization")), 0.01)
        _put(found, "hw.gpu.utilization{task=decoder}", _head(gate.ask("nvmlDeviceGetDecoderUtilization")), 0.01)
        found |= _memory(gate)
        if "hw.power" not in found:  # before Ampere there are no power fields, and this call is instantaneous
            _put(found, "hw.power", gate.ask("nvmlDeviceGetPowerUsage"), 1e-3)
        limit_mw = gate.ask("nvmlDeviceGetEnforcedPowerLimit")
        _put(found, "nvidia.gpu.power.limit{type=enforced}", limit_mw, 1e-3)
        die = gate.first(("nvmlDeviceGetTemperatureV", _DIE), ("nvmlDeviceGetTemperature", _DIE))
        _put(found, "hw.temperature{sensor=gpu}", die)
        _put(found, "nvidia.gpu.temperature.margin", gate.ask("nvmlDeviceGetMarginTemperature"))
        _put(found, "nvidia.gpu.clock.frequency{clock=sm}", gate.ask("nvmlDeviceGetClockInfo", _SM), 1e6)
        _put(found, "nvidia.gpu.clock.frequency{clock=mem}", gate.ask("nvmlDeviceGetClockInfo", _MEM), 1e6)
        reasons = gate.first(
            ("nvmlDeviceGetCurrentClocksEventReasons",),
            ("nvmlDeviceGetCurrentClocksThrottleReasons",),  # its older name
        )
        if reasons is not None:
            found["nvidia.gpu.clock.event.active{reason=thermal}"] = float(bool(reasons & _BY_HEAT))
            found["nvidia.gpu.clock.event.active{reason=power}"] = float(bool(reasons & _BY_POWER))
        pstate = gate.ask("nvmlDeviceGetPerformanceState")
        _put(found, "nvidia.gpu.pstate", None if pstate == _PSTATE_UNKNOWN else pstate)
        _put(found, "hw.fan.speed_ratio", gate.ask("nvmlDeviceGetFanSpeed"), 0.01)
        processes = gate.ask("nvmlDeviceGetComputeRunningProcesses_v3")
        _put(found, "nvidia.gpu.process.count", None if processes is None else len(processes))
        return found

    def _reject(self, key: str, value: float) -> None:
        if key not in self.rejected:
            _LOG.warning("GPU %s says %s = %g, which cannot be; such values are left out", self.device.id, key, value)
        self.rejected[key] = self.rejected.get(key, 0) + 1


def _put(found: dict[str, float], key: str, value: float | None, scale: float = 1.0) -> None:
    if value is not None:
        found[key] = value * scale


def _memory(gate: Gate) -> dict[str, float]:
    """Memory in bytes; what the driver reserves is known apart from what is in use only since version 2."""
    found: dict[str, float] = {}
    memory: Any = gate.ask("nvmlDeviceGetMemoryInfo", _MEMORY_V2)
    if memory is not None:
        found["nvidia.gpu.memory.reserved"] = float(memory.reserved)
    else:
        memory = gate.ask("nvmlDeviceGetMemoryInfo")
    if memory is not None and memory.total:
        found["hw.gpu.memory.usage"] = float(memory.used)
        found["hw.gpu.memory.limit"] = float(memory.total)
        found["hw.gpu.memory.utilization"] = memory.used / memory.total
    bar1 = gate.ask("nvmlDeviceGetBAR1MemoryInfo")
    if bar1 is not None:
        found["nvidia.gpu.bar1.usage"] = float(bar1.bar1Used)
    return found


def _head(pair: Any) -> float | None:
    """Utilisation of a codec engine, which comes with its sampling period."""
    return None if pair is None else float(pair[0])


def identify(gate: Gate, index: int, root: Path) -> Device:
    """Identity of the GPU at ``index``; raises :class:`DeviceLost` when it does not answer or has no UUID."""
    uuid = gate.ask("nvmlDeviceGetUUID")
    if not uuid:
        raise DeviceLost("nvmlDeviceGetUUID: no answer")
    limit_mw = gate.ask("nvmlDeviceGetEnforcedPowerLimit")
    address = _address(gate.ask("nvmlDeviceGetPciInfo"))
    return Device(
        id=str(uuid),
        model=str(gate.ask("nvmlDeviceGetName") or ""),
        memory_bytes=int(_memory(gate).get("hw.gpu.memory.limit", 0)),
        index=index,
        pci_address=address,
        serial=gate.ask("nvmlDeviceGetSerial"),
        numa_node=_numa_node(root, address),
        power_limit_w=None if limit_mw is None else limit_mw / 1e3,
    )


def _address(pci: Any) -> str | None:
    """PCI address as sysfs writes it, ``dddd:bb:dd.f`` in lower case."""
    return None if pci is None else f"{pci.domain:04x}:{pci.bus:02x}:{pci.device:02x}.0"


def _numa_node(root: Path, address: str | None) -> int | None:
    text = text_of(root / "sys/bus/pci/devices" / address / "numa_node").strip() if address else ""
    return int(text) if text.isdigit() else None  # the kernel writes -1 where there is only one
