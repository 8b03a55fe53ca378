"""One GPU with its MIG instances: everything that is read of it in one pass."""

import time
from collections.abc import Callable, Mapping
from ctypes import c_void_p
from pathlib import Path
from typing import NamedTuple

import msgspec

from flyball_collectors.base import NAN
from flyball_collectors.nvml.calls.fields import Field, FieldBatch
from flyball_collectors.nvml.calls.gate import DeviceLost, Gate
from flyball_collectors.nvml.devices.identity import identify
from flyball_collectors.nvml.devices.instance import Instance, mig_mode, open_instances
from flyball_collectors.nvml.devices.topology import Wires, wires_of
from flyball_collectors.nvml.readings.current import ENERGY, CurrentReader
from flyball_collectors.nvml.readings.detail import DetailReader
from flyball_collectors.nvml.readings.gpm import Gpm
from flyball_collectors.nvml.readings.link_errors import Counts, sum_of
from flyball_collectors.nvml.readings.processes import Process
from flyball_contracts.metrics import GPU, GPU_DETAIL
from flyball_contracts.records import Device

_DIE, _MARGIN = GPU.column("hw.temperature{sensor=gpu}"), GPU.column("nvidia.gpu.temperature.margin")
_COUNT, _LIMIT = GPU.column("nvidia.gpu.process.count"), GPU.column("nvidia.gpu.power.limit{type=enforced}")
_LINK_ERRORS = GPU.column("nvidia.gpu.nvlink.errors")
_READ_S = GPU_DETAIL.column("flyball.agent.read.duration")
_USED, _FREE = (GPU_DETAIL.column(f"nvidia.gpu.mig.slices{{state={state}}}") for state in ("used", "free"))
_ECC_MODE = 1  # field
_MOST_W = 1e4  # no board takes as much


class GpuReading(NamedTuple):
    """Result of one read of a GPU: a row for each of ``devices``, raw counters.

    ``details`` has rows if they were requested. A lost GPU has rows of NaN; ``lost`` says why. ``reasons`` are its
    clock event reasons, in nvml.h's bits. ``link_errors`` come with the details.
    """

    devices: tuple[Device, ...]
    rows: list[list[float]]
    details: list[list[float]]
    processes: list[Process]
    lost: str = ""
    reasons: int | None = None
    link_errors: Counts | None = None


class GpuReader:
    """Reads one GPU, by one thread at a time; ``device`` is the GPU as of the last read."""

    def __init__(self, gate: Gate, index: int, root: Path, clock: Callable[[], float] = time.perf_counter) -> None:
        self.gate = gate
        self.index = index
        self._root = root
        self._clock = clock
        self._instances: list[Instance] = []
        self._rescan = self._is_lost = False
        self.abandoned = ""
        self._capabilities: tuple[str, ...] = ()
        self._start(mig_mode(gate))
        self.uuid = self.device.id

    def wires(self, others: Mapping[str, c_void_p]) -> Wires:
        """Connections of the GPU to others, whose handles are given by UUID."""
        return wires_of(self.gate, others)

    def read(self, *, detail: bool, rescan: bool = False) -> GpuReading:
        """Read the GPU and its instances; the list of instances is updated with the detail, or on ``rescan``."""
        began_s = self._clock()
        if self.abandoned:
            return self._lost(self.abandoned, detail=detail)
        try:
            if detail or rescan or self._rescan:
                self._scan()
            rows = [self._current.read(divided=self.device.mig_enabled, detail=detail)]
            for one in self._instances:
                rows.append(self._read_instance(one, detail=detail))
            if self._instances:
                rows[0][_COUNT] = sum(row[_COUNT] for row in rows[1:])
            details = self._details(rows[0]) if detail else []
            if rows[0][_LINK_ERRORS] != rows[0][_LINK_ERRORS]:  # Hopper and later: as of the last look at the details
                rows[0][_LINK_ERRORS] = sum_of(self._detail.link_errors)
            self._note_limit(rows[0][_LIMIT])
        except DeviceLost as error:
            return self._lost(str(error), detail=detail)
        self._is_lost = False
        processes = [*self._current.processes, *(process for one in self._instances for process in one.processes)]
        if details:
            details[0][_READ_S] = self._clock() - began_s
        links = self._detail.link_errors if detail else None
        return GpuReading(self._devices(), rows, details, processes, "", self._current.reasons, links)

    def close(self) -> None:
        """Release all resources."""
        self._gpm.close()
        for one in self._instances:
            one.close()
        self._instances = []

    def abandon(self, why: str) -> None:
        """Stop using a handle of an ended session: the GPU is lost."""
        self.abandoned = why

    def _start(self, divided: bool) -> None:
        """Reset remembered failures: missing values may be available now."""
        self.gate = Gate(self.gate.library, self.gate.handle)
        self._gpm = Gpm(self.gate)
        self.device = identify(self.gate, self.index, self._root, mig_enabled=divided)
        self._current = CurrentReader(self.gate, self.device.id, self._gpm)
        self._detail = DetailReader(self.gate, self._root, self.device.pci_address)
        self._capabilities = ()
        ecc = [NAN]
        FieldBatch(self.gate, [Field(_ECC_MODE, 0)]).read(ecc)
        self._ecc = ecc[0] == 1

    def _scan(self) -> None:
        divided = mig_mode(self.gate)
        if divided != self.device.mig_enabled:
            self._gpm.close()
            self._start(divided)
        self._instances = open_instances(self.gate, self.device, self._instances)
        self._rescan = False

    def _note_limit(self, limit_w: float) -> None:
        if 0 < limit_w <= _MOST_W and limit_w != self.device.power_limit_w:
            self.device = msgspec.structs.replace(self.device, power_limit_w=limit_w)

    def _read_instance(self, one: Instance, *, detail: bool) -> list[float]:
        try:
            return one.read(detail=detail)
        except DeviceLost:  # it was deleted; the next read looks up the present instances
            self._rescan = True
            one.processes = []
            return [NAN] * len(GPU)

    def _details(self, now: list[float]) -> list[list[float]]:
        current = self._current
        row = self._detail.read(current.activity, current.reasons, now[_DIE], now[_MARGIN])
        if self.device.mig_enabled:
            by_gpu_instance = {one.place.gpu: one.slices or 0 for one in self._instances}
            row[_USED] = sum(by_gpu_instance.values())
            most = self.gate.number("nvmlDeviceGetMaxMigDeviceCount")
            row[_FREE] = NAN if most is None else max(most - row[_USED], 0)
        return [row, *(one.read_detail() for one in self._instances)]

    def _lost(self, why: str, *, detail: bool) -> GpuReading:
        if not self._is_lost:
            self._current = CurrentReader(self.gate, self.uuid, self._gpm)  # its counters begin again
        self._is_lost = True
        devices = (self.device, *(one.device for one in self._instances))
        rows = [[NAN] * len(GPU) for _ in devices]
        details = [[NAN] * len(GPU_DETAIL) for _ in devices] if detail else []
        return GpuReading(devices, rows, details, [], why)

    def _devices(self) -> tuple[Device, ...]:
        """The GPU, with its capabilities as observed so far, and its instances."""
        seen = {
            "gpm": self._gpm.supported,
            "samples": self._current.ring.started,
            "energy": self._current.has(ENERGY),
            "nvlink": self._detail.linked,
            "ecc": self._ecc,
        }
        capabilities = tuple(name for name, has in seen.items() if has or name in self._capabilities)
        if capabilities != self.device.capabilities:
            self._capabilities = capabilities
            self.device = msgspec.structs.replace(self.device, capabilities=capabilities)
        return (self.device, *(one.device for one in self._instances))
