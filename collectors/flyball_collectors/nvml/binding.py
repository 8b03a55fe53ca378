"""The same GPUs through NVIDIA's own binding, pynvml of nvidia-ml-py, which is imported nowhere else.

It costs 16 MiB, so the agent opens it only for calls in which the driver refuses the version of our struct, and
``flyball doctor --nvml`` to read everything a second time.
"""

import importlib
from collections.abc import Callable, Mapping, Sequence
from ctypes import byref, c_void_p, cast
from typing import Any

_MEMBERS = {0: "dVal", 1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal", 6: "usVal"}  # by nvmlValueType_t
_WIDE = frozenset({0, 2, 3, 4})
_LINK_COUNTERS = ("replay", "recovery", "crc", "crc", "ecc")  # by number, of flow control and of data
_MOST_LINKS = 36
_OF_DEVICE = 0  # nvmlTemperatureSensors_t
Values = dict[str, float]


class NoBinding(Exception):
    """The binding is not available; the text says why."""


class Binding:
    """Calls of the binding by the names of NVML; raises :class:`NoBinding` if it is absent or does not start."""

    def __init__(self) -> None:
        try:
            self.nvml: Any = importlib.import_module("pynvml")
        except ImportError:
            raise NoBinding("nvidia-ml-py is not installed; pip install 'flyball[agent]'") from None
        try:
            self.nvml.nvmlInitWithFlags(0)
        except self.nvml.NVMLError as error:
            raise NoBinding(f"nvidia-ml-py does not start: {error}") from error
        self._structs: Mapping[str, Callable[[Any], Values]] = {
            "nvmlDeviceGetMemoryInfo_v2": self._memory,
            "nvmlDeviceGetTemperatureV": lambda h: {"value": self.nvml.nvmlDeviceGetTemperatureV(h, _OF_DEVICE)},
            "nvmlDeviceGetMarginTemperature": lambda h: {"value": self.nvml.nvmlDeviceGetMarginTemperature(h)},
            "nvmlDeviceGetGpuFabricInfoV": self._fabric,
            "nvmlDeviceGetSramEccErrorStatus": self._sram,
        }

    def close(self) -> None:
        """Leave NVML, which counts its users."""
        try:
            self.nvml.nvmlShutdown()
        except self.nvml.NVMLError:
            return

    def structure(self, call: str, handle: c_void_p) -> Values | None:
        """Members of the struct that a call fills, by the names of :mod:`.abi`; ``None`` if it cannot be read."""
        read = self._structs.get(call)
        try:
            return None if read is None else read(self._device(handle))
        except (self.nvml.NVMLError, AttributeError):
            return None

    def identity(self, handle: c_void_p) -> Mapping[str, str]:
        """Identity of a GPU."""
        device, found = self._device(handle), dict[str, str]()
        for what in ("UUID", "Name", "Serial"):
            text = self._try(getattr(self.nvml, f"nvmlDeviceGet{what}"), device)
            found[what.lower()] = text if isinstance(text, str) else ""
        return found

    def processes(self, handle: c_void_p) -> Mapping[int, float]:
        """Bytes of each process that computes, computes through MPS or draws; NaN if unknown."""
        device, found = self._device(handle), dict[int, float]()
        for what in ("Compute", "MPSCompute", "Graphics"):
            listed = self._try(getattr(self.nvml, f"nvmlDeviceGet{what}RunningProcesses_v3"), device)
            for one in listed or ():
                held = float("nan") if one.usedGpuMemory is None else float(one.usedGpuMemory)
                found[one.pid] = max(found.get(one.pid, held), held)
        return found

    def computing(self, handle: c_void_p) -> int:
        """How many processes compute on a GPU, by themselves or through MPS."""
        device = self._device(handle)
        lists = (
            self.nvml.nvmlDeviceGetComputeRunningProcesses_v3,
            self.nvml.nvmlDeviceGetMPSComputeRunningProcesses_v3,
        )
        return len({one.pid for read in lists for one in self._try(read, device) or ()})

    def current(self, handle: c_void_p) -> Values:
        """Current values of a GPU, by the keys of the ``GPU`` layout; raw counters."""
        return self._all(_CURRENT, self._device(handle))

    def detail(self, handle: c_void_p) -> Values:
        """The same by the keys of the ``GPU_DETAIL`` layout."""
        return self._all(_DETAIL, self._device(handle))

    def fields(
        self, handle: c_void_p, fields: Sequence[tuple[int, int]]
    ) -> Mapping[tuple[int, int], tuple[float, bool]]:
        """Values of fields by id and scope, in NVML's own units, and whether they have 64 bits."""
        answers = self._try(self.nvml.nvmlDeviceGetFieldValues, self._device(handle), list(fields)) or ()
        return {
            (one.fieldId, one.scopeId): (float(getattr(one.value, _MEMBERS[one.valueType])), one.valueType in _WIDE)
            for one in answers
            if one.nvmlReturn == 0 and one.valueType in _MEMBERS
        }

    def link_errors(self, handle: c_void_p) -> dict[int, dict[str, float]]:
        """Errors of each NVLink by kind, by the call that reports them before Hopper."""
        device, found = self._device(handle), dict[int, dict[str, float]]()
        for link in range(_MOST_LINKS):
            for counter, kind in enumerate(_LINK_COUNTERS):
                value = self._try(self.nvml.nvmlDeviceGetNvLinkErrorCounter, device, link, counter)
                if value is not None:
                    kinds = found.setdefault(link, {})
                    kinds[kind] = kinds.get(kind, 0.0) + float(value)
        return found

    def gpm_sample(self, handle: c_void_p) -> Any:
        """A sample of GPM, ``None`` without it."""
        sample = self._try(self.nvml.nvmlGpmSampleAlloc)
        return None if sample is None else self._try(self.nvml.nvmlGpmSampleGet, self._device(handle), sample)

    def activity(self, before: Any, after: Any, ids: Sequence[int]) -> Mapping[int, float]:
        """GPM metrics of the time between two samples, by metric id, in their own units."""
        get = self.nvml.c_nvmlGpmMetricsGet_t()
        get.version, get.numMetrics, get.sample1, get.sample2 = 1, len(ids), before, after
        for place, id in enumerate(ids):
            get.metrics[place].metricId = id
        if self._try(self.nvml.nvmlGpmMetricsGet, get) is None:
            return {}
        answers = [get.metrics[place] for place in range(len(ids))]
        return {one.metricId: float(one.value) for one in answers if one.nvmlReturn == 0}

    def _device(self, handle: c_void_p) -> Any:
        return cast(handle, self.nvml.c_nvmlDevice_t)

    def _try(self, function: Callable[..., Any], *args: object) -> Any:
        try:
            return function(*args)
        except (self.nvml.NVMLError, UnicodeDecodeError):
            return None

    def _all(self, readers: Mapping[str, Callable[[Any, Any], Any]], device: Any) -> Values:
        found: Values = {}
        for key, read in readers.items():
            value = self._try(read, self.nvml, device)
            if value is not None:
                found[key] = float(value)
        return found

    def _memory(self, device: Any) -> Values:
        memory = self.nvml.nvmlDeviceGetMemoryInfo(device, version=self.nvml.nvmlMemory_v2)
        return {"total": memory.total, "used": memory.used, "reserved": memory.reserved}

    def _fabric(self, device: Any) -> Values:
        fabric = self.nvml.c_nvmlGpuFabricInfo_v2_t()
        self.nvml.nvmlDeviceGetGpuFabricInfoV(device, byref(fabric))
        return {"state": fabric.state, "status": fabric.status}

    def _sram(self, device: Any) -> Values:
        status = self.nvml.c_nvmlEccSramErrorStatus_v1_t()
        self.nvml.nvmlDeviceGetSramEccErrorStatus(device, byref(status))
        return {
            "corrected": status.aggregateCor,
            "uncorrected": status.aggregateUncParity + status.aggregateUncSecDed,
            "exceeded": status.bThresholdExceeded,
        }


def _field(id: int, scale: float = 1.0) -> Callable[[Any, Any], Any]:
    def read(nvml: Any, device: Any) -> float | None:
        (one,) = nvml.nvmlDeviceGetFieldValues(device, [id])
        if one.nvmlReturn or one.valueType not in _MEMBERS:
            return None
        return float(getattr(one.value, _MEMBERS[one.valueType])) * scale

    return read


def _reason(bits: int) -> Callable[[Any, Any], Any]:
    return lambda n, d: bool(n.nvmlDeviceGetCurrentClocksEventReasons(d) & bits)


def _sram_errors(read: Callable[[Any], float]) -> Callable[[Any, Any], Any]:
    def errors(nvml: Any, device: Any) -> float:
        status = nvml.c_nvmlEccSramErrorStatus_v1_t()
        nvml.nvmlDeviceGetSramEccErrorStatus(device, byref(status))
        return read(status)

    return errors


def _spare_rows(left: str) -> Callable[[Any, Any], Any]:
    return lambda n, d: getattr(n.nvmlDeviceGetRowRemapperHistogram(d), left)


def _links_up(nvml: Any, device: Any) -> float | None:
    found: list[int] = []
    for link in range(_MOST_LINKS):
        try:
            found.append(nvml.nvmlDeviceGetNvLinkState(device, link))
        except nvml.NVMLError:
            continue
    return float(sum(found)) if found else None


def _memory_info(read: Callable[[Any], float]) -> Callable[[Any, Any], Any]:
    return lambda n, d: read(n.nvmlDeviceGetMemoryInfo(d, version=n.nvmlMemory_v2))


def _fabric_info(member: str) -> Callable[[Any, Any], Any]:
    def read(nvml: Any, device: Any) -> float | None:
        fabric = nvml.c_nvmlGpuFabricInfo_v2_t()
        nvml.nvmlDeviceGetGpuFabricInfoV(device, byref(fabric))
        return float(getattr(fabric, member)) if fabric.state else None

    return read


# Wherever NVML has a call of its own for a value that our layer reads by field id, that call is used.
_CURRENT: Mapping[str, Callable[[Any, Any], Any]] = {
    "hw.gpu.utilization{task=general}": lambda n, d: n.nvmlDeviceGetUtilizationRates(d).gpu / 100,
    "hw.gpu.utilization{task=encoder}": lambda n, d: n.nvmlDeviceGetEncoderUtilization(d)[0] / 100,
    "hw.gpu.utilization{task=decoder}": lambda n, d: n.nvmlDeviceGetDecoderUtilization(d)[0] / 100,
    "nvidia.gpu.memory.controller.utilization": lambda n, d: n.nvmlDeviceGetUtilizationRates(d).memory / 100,
    "hw.gpu.memory.usage": _memory_info(lambda answer: answer.used),
    "hw.gpu.memory.limit": _memory_info(lambda answer: answer.total),
    "nvidia.gpu.memory.reserved": _memory_info(lambda answer: answer.reserved),
    "hw.gpu.memory.utilization": _memory_info(lambda answer: answer.used / answer.total),
    "nvidia.gpu.bar1.usage": lambda n, d: n.nvmlDeviceGetBAR1MemoryInfo(d).bar1Used,
    "hw.power": _field(186, 1e-3),
    "nvidia.gpu.power.average": _field(185, 1e-3),
    "hw.energy": lambda n, d: n.nvmlDeviceGetTotalEnergyConsumption(d) / 1e3,
    "nvidia.gpu.power.limit{type=enforced}": lambda n, d: n.nvmlDeviceGetEnforcedPowerLimit(d) / 1e3,
    "hw.temperature{sensor=gpu}": lambda n, d: n.nvmlDeviceGetTemperatureV(d, _OF_DEVICE),
    "hw.temperature{sensor=memory}": _field(82),
    "nvidia.gpu.temperature.margin": lambda n, d: n.nvmlDeviceGetMarginTemperature(d),
    "nvidia.gpu.clock.frequency{clock=sm}": lambda n, d: n.nvmlDeviceGetClockInfo(d, 1) * 1e6,
    "nvidia.gpu.clock.frequency{clock=mem}": lambda n, d: n.nvmlDeviceGetClockInfo(d, 2) * 1e6,
    "nvidia.gpu.clock.event.active{reason=thermal}": _reason(0x60),
    "nvidia.gpu.clock.event.active{reason=power}": _reason(0x84),
    "nvidia.gpu.throttle.time{reason=power}": lambda n, d: n.nvmlDeviceGetViolationStatus(d, 0).violationTime / 1e9,
    "nvidia.gpu.throttle.time{reason=thermal}": lambda n, d: n.nvmlDeviceGetViolationStatus(d, 1).violationTime / 1e9,
    "nvidia.gpu.pstate": lambda n, d: None if (p := n.nvmlDeviceGetPerformanceState(d)) == 32 else p,
    "hw.fan.speed_ratio": lambda n, d: n.nvmlDeviceGetFanSpeed(d) / 100,
    "nvidia.gpu.pcie.replays": lambda n, d: n.nvmlDeviceGetPcieReplayCounter(d),
    "hw.errors{type=corrected}": lambda n, d: n.nvmlDeviceGetTotalEccErrors(d, 0, 0),
    "hw.errors{type=uncorrected}": lambda n, d: n.nvmlDeviceGetTotalEccErrors(d, 1, 0),
    "nvidia.gpu.memory.row_remap.pending": lambda n, d: n.nvmlDeviceGetRemappedRows(d)[2],
    "nvidia.gpu.recovery_action": _field(230),
}
_DETAIL: Mapping[str, Callable[[Any, Any], Any]] = {
    "nvidia.gpu.power.limit{type=requested}": lambda n, d: n.nvmlDeviceGetPowerManagementLimit(d) / 1e3,
    "nvidia.gpu.power.limit{type=default}": lambda n, d: n.nvmlDeviceGetPowerManagementDefaultLimit(d) / 1e3,
    "nvidia.gpu.power.limit{type=min}": lambda n, d: n.nvmlDeviceGetPowerManagementLimitConstraints(d)[0] / 1e3,
    "nvidia.gpu.power.limit{type=max}": lambda n, d: n.nvmlDeviceGetPowerManagementLimitConstraints(d)[1] / 1e3,
    "nvidia.gpu.clock.frequency{clock=video}": lambda n, d: n.nvmlDeviceGetClockInfo(d, 3) * 1e6,
    "nvidia.gpu.pcie.link{value=current,what=generation}": lambda n, d: n.nvmlDeviceGetCurrPcieLinkGeneration(d),
    "nvidia.gpu.pcie.link{value=max,what=generation}": lambda n, d: n.nvmlDeviceGetMaxPcieLinkGeneration(d),
    "nvidia.gpu.pcie.link{value=current,what=width}": lambda n, d: n.nvmlDeviceGetCurrPcieLinkWidth(d),
    "nvidia.gpu.pcie.link{value=max,what=width}": lambda n, d: n.nvmlDeviceGetMaxPcieLinkWidth(d),
    "nvidia.gpu.fabric.state": _fabric_info("state"),
    "nvidia.gpu.fabric.status": _fabric_info("status"),
    "nvidia.gpu.ecc.errors{location=dram,type=corrected}": lambda n, d: n.nvmlDeviceGetMemoryErrorCounter(d, 0, 1, 2),
    "nvidia.gpu.ecc.errors{location=dram,type=uncorrected}": lambda n, d: n.nvmlDeviceGetMemoryErrorCounter(d, 1, 1, 2),
    "nvidia.gpu.memory.rows.remapped{cause=corrected}": lambda n, d: n.nvmlDeviceGetRemappedRows(d)[0],
    "nvidia.gpu.memory.rows.remapped{cause=uncorrected}": lambda n, d: n.nvmlDeviceGetRemappedRows(d)[1],
    "nvidia.gpu.memory.row_remap.failed": lambda n, d: n.nvmlDeviceGetRemappedRows(d)[3],
    "nvidia.gpu.ecc.errors{location=sram,type=corrected}": _sram_errors(lambda answer: answer.aggregateCor),
    "nvidia.gpu.ecc.errors{location=sram,type=uncorrected}": _sram_errors(
        lambda answer: answer.aggregateUncParity + answer.aggregateUncSecDed
    ),
    "nvidia.gpu.ecc.sram.threshold": _sram_errors(lambda answer: answer.bThresholdExceeded),
    "nvidia.gpu.nvlink.up": _links_up,
    "hw.temperature.limit{limit=high.degraded}": lambda n, d: n.nvmlDeviceGetTemperatureThreshold(d, 1),
    "hw.temperature.limit{limit=high.critical}": lambda n, d: n.nvmlDeviceGetTemperatureThreshold(d, 0),
    **{
        f"nvidia.gpu.memory.row_remap.banks{{availability={left}}}": _spare_rows(left)
        for left in ("max", "high", "partial", "low", "none")
    },
    **{
        f"nvidia.gpu.clock.event.active{{reason={reason}}}": _reason(bit)
        for bit, reason in {
            0x1: "idle", 0x2: "applications", 0x4: "sw_power", 0x8: "hw", 0x10: "sync_boost", 0x20: "sw_thermal",
            0x40: "hw_thermal", 0x80: "hw_power_brake", 0x100: "display",
        }.items()
    },
}  # fmt: skip
