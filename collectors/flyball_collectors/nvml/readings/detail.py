"""Metrics of one GPU for operators: a row of the ``GPU_DETAIL`` layout."""

from ctypes import byref, c_ulonglong
from pathlib import Path

from flyball_collectors.base import NAN
from flyball_collectors.kernel import numbers, text_of
from flyball_collectors.nvml.calls.abi import FABRIC_V2, SRAM_V1, Fabric, RemapHistogram, SramErrors
from flyball_collectors.nvml.calls.fields import Field, FieldBatch
from flyball_collectors.nvml.calls.gate import Gate
from flyball_collectors.nvml.devices.topology import MAX_LINKS, LinkStates
from flyball_collectors.nvml.readings.gpm import Activity
from flyball_collectors.nvml.readings.link_errors import LinkErrors, sum_of
from flyball_collectors.nvml.readings.samples import POWER, Ring
from flyball_contracts.metrics import GPU_DETAIL

_column = GPU_DETAIL.column
ACTIVITY = {
    6: _column("nvidia.gpu.tensor.activity{pipe=dfma}"),
    7: _column("nvidia.gpu.tensor.activity{pipe=hmma}"),
    9: _column("nvidia.gpu.tensor.activity{pipe=imma}"),
    248: _column("nvidia.gpu.sm.cycles{state=elapsed}"),
    249: _column("nvidia.gpu.sm.cycles{state=active}"),
}
_SAMPLES = [_column(f"nvidia.gpu.power.sample{{stat={stat}}}") for stat in ("mean", "min", "max", "p95")]
_REASONS = {
    0x1: "idle", 0x2: "applications", 0x4: "sw_power", 0x8: "hw", 0x10: "sync_boost", 0x20: "sw_thermal",
    0x40: "hw_thermal", 0x80: "hw_power_brake", 0x100: "display",
}  # fmt: skip
_REASON_COLUMNS = [
    (bit, _column(f"nvidia.gpu.clock.event.active{{reason={reason}}}")) for bit, reason in _REASONS.items()
]
_LINKS = {
    "generation,value=current": "CurrPcieLinkGeneration", "generation,value=max": "MaxPcieLinkGeneration",
    "width,value=current": "CurrPcieLinkWidth", "width,value=max": "MaxPcieLinkWidth",
}  # fmt: skip
_PCIE = [
    (_column("nvidia.gpu.pcie.link{" + ",".join(sorted(f"what={what}".split(","))) + "}"), f"nvmlDeviceGet{call}")
    for what, call in _LINKS.items()
]
_VIDEO, _VIDEO_CLOCK = _column("nvidia.gpu.clock.frequency{clock=video}"), 3
_FABRIC, _FABRIC_STATUS = _column("nvidia.gpu.fabric.state"), _column("nvidia.gpu.fabric.status")
_BANKS = [
    _column(f"nvidia.gpu.memory.row_remap.banks{{availability={left}}}")
    for left in ("max", "high", "partial", "low", "none")
]
_ECC = {
    (kind, where): _column(f"nvidia.gpu.ecc.errors{{location={where},type={kind}}}")
    for where in ("dram", "sram")
    for kind in ("corrected", "uncorrected")
}
_EXCEEDED = _column("nvidia.gpu.ecc.sram.threshold")
_LIMITS = [_column(f"hw.temperature.limit{{limit=high.{limit}}}") for limit in ("degraded", "critical")]
_SLOWDOWN, _SHUTDOWN = 1, 0  # nvmlTemperatureThresholds_t
_AGGREGATE, _DRAM, _SRAM = 1, 2, 7  # nvmlEccCounterType_t, nvmlMemoryLocation_t
_FILES = {"correctable": "aer_dev_correctable", "non_fatal": "aer_dev_nonfatal", "fatal": "aer_dev_fatal"}
_TOTALS = {"correctable": "TOTAL_ERR_COR", "non_fatal": "TOTAL_ERR_NONFATAL", "fatal": "TOTAL_ERR_FATAL"}
_PARTS = {"bad_tlp": "BadTLP", "bad_dllp": "BadDLLP"}
_COLUMNS = {kind: GPU_DETAIL.column(f"nvidia.gpu.pcie.errors{{type={kind}}}") for kind in (*_FILES, *_PARTS)}


class AerCounters:
    """Counters of one PCI device under ``root``, readable by everyone; a kernel without them is queried once."""

    def __init__(self, root: Path, address: str | None) -> None:
        self._folder = root / "sys/bus/pci/devices" / address if address else None

    def put(self, row: list[float]) -> None:
        """Fill unknown count columns of ``row`` (of :data:`GPU_DETAIL`)."""
        if self._folder is None or all(row[column] == row[column] for column in _COLUMNS.values()):
            return
        found: dict[str, float] = {}
        for kind, name in _FILES.items():
            counts = _counts(text_of(self._folder / name))
            found[kind] = counts.get(_TOTALS[kind], NAN)
            if kind == "correctable":
                found |= {part: counts.get(word, NAN) for part, word in _PARTS.items()}
        if all(count != count for count in found.values()):
            self._folder = None
        for kind, column in _COLUMNS.items():
            if row[column] != row[column]:
                row[column] = found.get(kind, NAN)


def _counts(text: str) -> dict[str, float]:
    """Lines of a name and a number each; others are skipped."""
    pairs = [line.split() for line in text.splitlines()]
    return {pair[0]: float(value[0]) for pair in pairs if len(pair) == 2 and (value := numbers(pair[1:]))}


def _named(name: str, attribute: str, ids: dict[str, int], scale: float = 1.0) -> tuple[Field, ...]:
    return tuple(Field(id, _column(f"{name}{{{attribute}={value}}}"), scale) for value, id in ids.items())


_UP = _column("nvidia.gpu.nvlink.up")
_LINK_ERRORS = {
    kind: _column(f"nvidia.gpu.nvlink.errors{{type={kind}}}") for kind in ("crc", "replay", "recovery", "ecc", "symbol")
}
FIELDS = (
    Field(297, _column("nvidia.gpu.mma.stall"), 0.01),
    *_named("nvidia.gpu.power.limit", "type", {"min": 187, "max": 188, "default": 189, "requested": 192}, 1e-3),
    *_named(
        "nvidia.gpu.throttle.time",
        "reason",
        {
            "sync_boost": 76, "board_limit": 77, "low_utilization": 78, "reliability": 79, "sw_thermal": 269,
            "hw_thermal": 270, "hw_power_brake": 271,
        },
        1e-9,
    ),
    *_named(
        "nvidia.gpu.pcie.errors",
        "type",
        {
            "correctable": 173, "nak_received": 174, "bad_tlp": 176, "nak_sent": 177, "bad_dllp": 178,
            "non_fatal": 179, "fatal": 180,
        },
    ),
    Field(91, _column("nvidia.gpu.nvlink.count")),
    Field(160, _LINK_ERRORS["ecc"]),
    *_named("nvidia.gpu.memory.pages.retired", "cause", {"single_bit": 29, "double_bit": 30}),
    *_named("nvidia.gpu.memory.rows.remapped", "cause", {"corrected": 142, "uncorrected": 143}),
    Field(145, _column("nvidia.gpu.memory.row_remap.failed")),
    *(Field(221, _LINK_ERRORS["symbol"], scope=link) for link in range(MAX_LINKS)),
)  # fmt: skip
SUMMED = {kind: _LINK_ERRORS[kind] for kind in ("crc", "replay", "recovery")}
"""Columns that are sums of the errors of each link."""
_ALL_LINKS = (  # for drivers that do not report single links; these fields only sum the first links
    Field(38, _LINK_ERRORS["crc"]),
    Field(45, _LINK_ERRORS["crc"]),
    Field(52, _LINK_ERRORS["replay"]),
    Field(59, _LINK_ERRORS["recovery"]),
)
_TLIMITS = (Field(194, 0), Field(193, 1))  # how far below the slowdown margin each limit is


class DetailReader:
    """Reads one whole GPU; all buffers are allocated once."""

    def __init__(self, gate: Gate, root: Path = Path("/"), address: str | None = None) -> None:
        self.linked = False
        self.link_errors: dict[int, dict[str, float]] = {}
        self._aer = AerCounters(root, address)
        self._power = Ring(gate, POWER, 1e-3, 1e4)
        self._gate = gate
        self._fields = FieldBatch(gate, FIELDS)
        self._states = LinkStates(gate)
        self._link_errors, self._all_links = LinkErrors(gate), FieldBatch(gate, _ALL_LINKS)
        self._tlimits = FieldBatch(gate, _TLIMITS)
        self._fabric, self._sram = Fabric(version=FABRIC_V2), SramErrors(version=SRAM_V1)
        self._banks, self._errors = RemapHistogram(), c_ulonglong()
        self._fabric_at, self._sram_at = byref(self._fabric), byref(self._sram)
        self._banks_at, self._errors_at = byref(self._banks), byref(self._errors)

    def read(self, activity: Activity, reasons: int | None, die: float, margin: float) -> list[float]:
        """Available values by column, raw counters.

        ``activity``, ``reasons`` and the temperatures are of the row of the ``GPU`` layout at the same time. Sets
        ``link_errors`` to the errors of each NVLink.
        """
        row = [NAN] * len(GPU_DETAIL)
        gate = self._gate
        self._fields.read(row)
        states = self._states.read()
        if states:
            row[_UP] = sum(states.values())
        self.link_errors = self._link_errors.read(list(states))
        for kind, column in SUMMED.items():
            row[column] = sum_of(self.link_errors, kind)
        if all(row[column] != row[column] for column in SUMMED.values()):
            self._all_links.read(row)
        self._aer.put(row)
        self.linked = self.linked or row[_UP] > 0
        put_activity(row, activity)
        window = self._power.read()
        if window is not None:
            for column, value in zip(_SAMPLES, window, strict=True):
                row[column] = value
        if reasons is not None:
            for bit, column in _REASON_COLUMNS:
                row[column] = float(bool(reasons & bit))
        mhz = gate.number("nvmlDeviceGetClockInfo", _VIDEO_CLOCK)
        if mhz is not None:
            row[_VIDEO] = mhz * 1e6
        for column, call in _PCIE:
            number = gate.number(call)
            if number is not None:
                row[column] = number
        if gate.call("nvmlDeviceGetGpuFabricInfoV", self._fabric_at) and self._fabric.state:
            row[_FABRIC], row[_FABRIC_STATUS] = self._fabric.state, self._fabric.status
        elif (answer := gate.structure("nvmlDeviceGetGpuFabricInfoV")) is not None and answer["state"]:
            row[_FABRIC], row[_FABRIC_STATUS] = answer["state"], answer["status"]
        if gate.call("nvmlDeviceGetRowRemapperHistogram", self._banks_at):
            banks = self._banks
            for column, value in zip(
                _BANKS, (banks.most, banks.high, banks.partial, banks.low, banks.none), strict=True
            ):
                row[column] = value
        self._memory_errors(row)
        self._temperature_limits(row, die + margin)
        return row

    def _memory_errors(self, row: list[float]) -> None:
        gate = self._gate
        for type_, kind in enumerate(("corrected", "uncorrected")):
            if gate.call("nvmlDeviceGetMemoryErrorCounter", type_, _AGGREGATE, _DRAM, self._errors_at):
                row[_ECC[kind, "dram"]] = self._errors.value
        if gate.call("nvmlDeviceGetSramEccErrorStatus", self._sram_at):
            row[_ECC["corrected", "sram"]] = self._sram.corrected
            row[_ECC["uncorrected", "sram"]] = self._sram.parity + self._sram.sec_ded
            row[_EXCEEDED] = float(bool(self._sram.exceeded))
        elif (answer := gate.structure("nvmlDeviceGetSramEccErrorStatus")) is not None:
            row[_ECC["corrected", "sram"]] = answer["corrected"]
            row[_ECC["uncorrected", "sram"]] = answer["uncorrected"]
            row[_EXCEEDED] = float(bool(answer["exceeded"]))

    def _temperature_limits(self, row: list[float], slowdown: float) -> None:
        """Ada and later report limits as margins; adding the present margin gives temperatures."""
        below = [NAN, NAN]
        self._tlimits.read(below)
        for column, margin, threshold in zip(_LIMITS, below, (_SLOWDOWN, _SHUTDOWN), strict=True):
            if margin == margin:
                row[column] = slowdown - margin
            else:
                limit = self._gate.number("nvmlDeviceGetTemperatureThreshold", threshold)
                row[column] = NAN if limit is None else limit


def put_activity(row: list[float], activity: Activity) -> None:
    """Put GPM's values into their columns."""
    for id, column in ACTIVITY.items():
        if id in activity:
            row[column] = activity[id]
