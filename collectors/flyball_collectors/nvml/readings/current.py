"""Metrics of one GPU that decisions need at each tick: a row of the ``GPU`` layout."""

import time
from collections.abc import Callable
from ctypes import byref, c_int, c_uint, c_ulonglong

from flyball_collectors.base import NAN
from flyball_collectors.nvml.calls.abi import (
    MARGIN_V1,
    MEMORY_V2,
    TEMPERATURE_V1,
    Bar1,
    Margin,
    Memory,
    Memory2,
    Temperature,
    Utilization,
)
from flyball_collectors.nvml.calls.fields import ALL_LINKS, Field, FieldBatch
from flyball_collectors.nvml.calls.gate import Gate
from flyball_collectors.nvml.devices.topology import MAX_LINKS, pcie_speed
from flyball_collectors.nvml.readings.gpm import PCIE_RECEIVED, PCIE_SENT, Activity, Gpm
from flyball_collectors.nvml.readings.processes import Process, ProcessReader
from flyball_collectors.nvml.readings.samples import GPU_UTILIZATION, Ring
from flyball_contracts.metrics import GPU

_column = GPU.column
_BUSY, _TIME = _column("hw.gpu.utilization{task=general}"), _column("nvidia.gpu.busy.time")
_LEAST, _MOST, _P95 = (_column(f"nvidia.gpu.utilization.{name}") for name in ("min", "max", "p95"))
_ENCODER, _DECODER = (_column(f"hw.gpu.utilization{{task={task}}}") for task in ("encoder", "decoder"))
_CONTROLLER = _column("nvidia.gpu.memory.controller.utilization")
_USED, _TOTAL = _column("hw.gpu.memory.usage"), _column("hw.gpu.memory.limit")
_RESERVED, _FULL = _column("nvidia.gpu.memory.reserved"), _column("hw.gpu.memory.utilization")
_BAR1 = _column("nvidia.gpu.bar1.usage")
_POWER, _LIMIT = _column("hw.power"), _column("nvidia.gpu.power.limit{type=enforced}")
_DIE, _MARGIN = _column("hw.temperature{sensor=gpu}"), _column("nvidia.gpu.temperature.margin")
_SM, _MEM = (_column(f"nvidia.gpu.clock.frequency{{clock={clock}}}") for clock in ("sm", "mem"))
_HOT, _CAPPED = (_column(f"nvidia.gpu.clock.event.active{{reason={reason}}}") for reason in ("thermal", "power"))
_PSTATE, _FAN = _column("nvidia.gpu.pstate"), _column("hw.fan.speed_ratio")
_PROCESSES = _column("nvidia.gpu.process.count")
ACTIVITY = {
    1: _column("nvidia.gpu.graphics.activity"),
    2: _column("nvidia.gpu.sm.activity"),
    3: _column("nvidia.gpu.sm.occupancy"),
    4: _column("nvidia.gpu.int.activity"),
    5: _column("nvidia.gpu.tensor.activity"),
    10: _column("nvidia.gpu.dram.bandwidth.utilization"),
    11: _column("nvidia.gpu.fp.activity{precision=64}"),
    12: _column("nvidia.gpu.fp.activity{precision=32}"),
    13: _column("nvidia.gpu.fp.activity{precision=16}"),
}
_GRAPHICS = 1  # GPM: time with a kernel running

# Constants of nvml.h.
_SM_CLOCK, _MEM_CLOCK = 1, 2
_PSTATE_UNKNOWN = 32
_BY_POWER = 0x04 | 0x80  # software power cap, hardware power brake
_BY_HEAT = 0x20 | 0x40  # software and hardware thermal slowdown
_THROTTLE = "nvidia.gpu.throttle.time{{reason={}}}"
_LINK_ERRORS = _column("nvidia.gpu.nvlink.errors")
FIELDS = (
    Field(3, _column("hw.errors{type=corrected}")),
    Field(4, _column("hw.errors{type=uncorrected}")),
    Field(38, _LINK_ERRORS),  # CRC of flow control
    Field(45, _LINK_ERRORS),  # CRC of data
    Field(52, _LINK_ERRORS),  # replays
    Field(59, _LINK_ERRORS),  # recoveries
    Field(160, _LINK_ERRORS),  # ECC of data
    Field(74, _column(_THROTTLE.format("power")), 1e-9),
    Field(75, _column(_THROTTLE.format("thermal")), 1e-9),
    Field(82, _column("hw.temperature{sensor=memory}")),
    Field(83, _column("hw.energy"), 1e-3),
    Field(94, _column("nvidia.gpu.pcie.replays")),
    Field(138, _column("nvidia.gpu.nvlink.io{direction=transmit}"), 1024, ALL_LINKS, wide=True),
    Field(139, _column("nvidia.gpu.nvlink.io{direction=receive}"), 1024, ALL_LINKS, wide=True),
    Field(144, _column("nvidia.gpu.memory.row_remap.pending")),
    Field(185, _column("nvidia.gpu.power.average"), 1e-3),
    Field(186, _POWER, 1e-3),
    Field(197, _column("hw.gpu.io{direction=transmit}"), wide=True, wraps=True),
    Field(198, _column("hw.gpu.io{direction=receive}"), wide=True, wraps=True),
    Field(230, _column("nvidia.gpu.recovery_action")),
)
EACH_LINK = tuple(  # on Blackwell, which has them only by link
    Field(id, _column(f"nvidia.gpu.nvlink.io{{direction={way}}}"), scope=link, wide=True)
    for id, way in ((202, "transmit"), (204, "receive"))
    for link in range(MAX_LINKS)
)
_PCIE_RATES = {
    _column("hw.gpu.io{direction=transmit}"): PCIE_SENT,
    _column("hw.gpu.io{direction=receive}"): PCIE_RECEIVED,
}
_MIB = 1 << 20
_SENT = _column("nvidia.gpu.nvlink.io{direction=transmit}")
ENERGY = 83
_TURN = 1 << 32


class Wraps:
    """One counter, extended beyond 32 bits.

    The number of wraps since the previous read follows from the rate, if another source has it. Without one the
    increase is known only if the link, at ``fastest`` bytes per second, could not wrap it.
    """

    def __init__(self, fastest: Callable[[], float | None]) -> None:
        self._fastest = fastest
        self._last: int | None = None
        self._last_s = 0.0
        self._total = 0.0

    def total(self, low: int, now_s: float, rate: float | None) -> float:
        """Bytes since the first read by the lower 32 bits and the mean ``rate`` since the last; NaN if unknown."""
        last, passed_s = self._last, now_s - self._last_s
        self._last, self._last_s = low, now_s
        if last is None:
            return self._total
        increase = (low - last) % _TURN
        if rate is not None:
            increase += max(0, round((rate * passed_s - increase) / _TURN)) * _TURN
        else:
            fastest = self._fastest()
            if fastest is None or fastest * passed_s >= _TURN:
                return NAN
        self._total += increase
        return self._total


class MemoryReader:
    """Reads the memory of a GPU or of a MIG instance into its columns."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._second = Memory2(version=MEMORY_V2)
        self._second_at = byref(self._second)
        self._first = Memory()
        self._first_at = byref(self._first)

    def read(self, row: list[float]) -> None:
        """Read the memory. Only version 2 of the call separates reserved memory from memory in use."""
        memory: Memory | Memory2 = self._second
        if self._gate.call("nvmlDeviceGetMemoryInfo_v2", self._second_at):
            row[_RESERVED] = self._second.reserved
        elif (answer := self._gate.structure("nvmlDeviceGetMemoryInfo_v2")) is not None:
            memory.total, memory.used = int(answer["total"]), int(answer["used"])
            row[_RESERVED] = answer["reserved"]
        elif self._gate.call("nvmlDeviceGetMemoryInfo", self._first_at):
            memory = self._first
        else:
            return
        if memory.total:
            row[_USED], row[_TOTAL] = memory.used, memory.total
            row[_FULL] = memory.used / memory.total


def put_activity(row: list[float], activity: Activity) -> None:
    """Put GPM's values into their columns.

    If NVML does not report utilisation, as on divided GPUs, GPM's time with a kernel running replaces it.
    """
    for id, column in ACTIVITY.items():
        if id in activity:
            row[column] = activity[id]
    if row[_BUSY] != row[_BUSY] and _GRAPHICS in activity:
        row[_BUSY] = activity[_GRAPHICS]


class CurrentReader:
    """Reads one whole GPU; all buffers are allocated once."""

    def __init__(self, gate: Gate, device: str, gpm: Gpm, clock: Callable[[], float] = time.monotonic) -> None:
        self.reasons: int | None = None
        self.activity: Activity = {}
        self.processes: list[Process] = []
        self.ring = Ring(gate, GPU_UTILIZATION, 0.01, 1.0)
        self._gate = gate
        self._gpm = gpm
        self._fields, self._each_link = FieldBatch(gate, FIELDS), FieldBatch(gate, EACH_LINK)
        self._clock = clock
        self._wraps = {column: Wraps(lambda: pcie_speed(gate)) for column in _PCIE_RATES}
        self._memory = MemoryReader(gate)
        self._processes = ProcessReader(gate, device)
        self._rates, self._bar1 = Utilization(), Bar1()
        self._die, self._margin = Temperature(version=TEMPERATURE_V1), Margin(version=MARGIN_V1)
        self._why, self._pstate, self._percent, self._period = c_ulonglong(), c_int(), c_uint(), c_uint()
        self._rates_at, self._bar1_at = byref(self._rates), byref(self._bar1)
        self._die_at, self._margin_at = byref(self._die), byref(self._margin)
        self._why_at, self._pstate_at = byref(self._why), byref(self._pstate)
        self._percent_at, self._period_at = byref(self._percent), byref(self._period)

    def has(self, field: int) -> bool:
        """Whether the GPU has a field, as far as is known."""
        return self._fields.has(field)

    def read(self, *, divided: bool, detail: bool = False) -> list[float]:
        """Available values by column, raw counters; the processes of a divided GPU are its instances'.

        Sets ``reasons`` to the clock event reasons, in nvml.h's bits; ``None`` if unknown.
        """
        row = [NAN] * len(GPU)
        gate = self._gate
        self._fields.read(row)
        if row[_SENT] != row[_SENT]:
            self._each_link.read(row)
        self._utilization(row)
        self._memory.read(row)
        if gate.call("nvmlDeviceGetBAR1MemoryInfo", self._bar1_at):
            row[_BAR1] = self._bar1.used
        if row[_POWER] != row[_POWER]:  # before Ampere there are no power fields, and this call is instantaneous
            self._put(row, _POWER, gate.number("nvmlDeviceGetPowerUsage"), 1e-3)
        self._put(row, _LIMIT, gate.number("nvmlDeviceGetEnforcedPowerLimit"), 1e-3)
        if gate.call("nvmlDeviceGetTemperatureV", self._die_at):
            row[_DIE] = self._die.value
        elif (answer := gate.structure("nvmlDeviceGetTemperatureV")) is not None:
            row[_DIE] = answer["value"]
        else:
            self._put(row, _DIE, gate.number("nvmlDeviceGetTemperature", 0))
        if gate.call("nvmlDeviceGetMarginTemperature", self._margin_at):
            row[_MARGIN] = self._margin.value
        elif (answer := gate.structure("nvmlDeviceGetMarginTemperature")) is not None:
            row[_MARGIN] = answer["value"]
        self._put(row, _SM, gate.number("nvmlDeviceGetClockInfo", _SM_CLOCK), 1e6)
        self._put(row, _MEM, gate.number("nvmlDeviceGetClockInfo", _MEM_CLOCK), 1e6)
        reasons = self.reasons = self._clock_reasons()
        if reasons is not None:
            row[_HOT], row[_CAPPED] = float(bool(reasons & _BY_HEAT)), float(bool(reasons & _BY_POWER))
        if gate.call("nvmlDeviceGetPerformanceState", self._pstate_at) and self._pstate.value != _PSTATE_UNKNOWN:
            row[_PSTATE] = self._pstate.value
        self._put(row, _FAN, gate.number("nvmlDeviceGetFanSpeed"), 0.01)
        self.activity = self._gpm.read()
        put_activity(row, self.activity)
        self._pcie(row)
        self.processes = [] if divided else self._processes.read(row[_BUSY], detail=detail)
        if not divided:
            put_count(row, self._processes.running)
        return row

    def _clock_reasons(self) -> int | None:
        known = self._gate.call("nvmlDeviceGetCurrentClocksEventReasons", self._why_at) or self._gate.call(
            "nvmlDeviceGetCurrentClocksThrottleReasons",  # its older name
            self._why_at,
        )
        return self._why.value if known else None

    def _pcie(self, row: list[float]) -> None:
        """Bytes of PCIe if the driver counts them in 32 bits: GPM shows how often those wrapped."""
        for column, low in self._fields.wrapped.items():
            rate = self.activity.get(_PCIE_RATES[column])
            row[column] = self._wraps[column].total(low, self._clock(), None if rate is None else rate * _MIB)

    def _utilization(self, row: list[float]) -> None:
        gate = self._gate
        if gate.call("nvmlDeviceGetUtilizationRates", self._rates_at):
            row[_BUSY], row[_CONTROLLER] = self._rates.gpu / 100, self._rates.memory / 100
        window = self.ring.read()
        if self.ring.started:
            row[_TIME] = self.ring.integral
        if window is not None:
            row[_BUSY], row[_LEAST], row[_MOST], row[_P95] = window
        for name, column in (("Encoder", _ENCODER), ("Decoder", _DECODER)):
            if gate.call(f"nvmlDeviceGet{name}Utilization", self._percent_at, self._period_at):
                row[column] = self._percent.value / 100

    @staticmethod
    def _put(row: list[float], column: int, value: float | None, scale: float = 1.0) -> None:
        if value is not None:
            row[column] = value * scale


def put_count(row: list[float], processes: int | None) -> None:
    """Put the number of processes into its column."""
    row[_PROCESSES] = NAN if processes is None else processes
