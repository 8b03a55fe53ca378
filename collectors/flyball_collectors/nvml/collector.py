"""All GPUs of this node as one collector."""

import importlib
import logging
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from flyball_collectors.base import Parts, Reading, node_event
from flyball_collectors.nvml.device import GpuReader, identify
from flyball_collectors.nvml.gate import DeviceLost, Gate
from flyball_collectors.nvml.watch import ROW_RETIREMENT_FAILED, UNCORRECTED_ECC, XID, EventWatch, Happening
from flyball_collectors.nvml.xid import verdict_of
from flyball_contracts.metrics import GPU
from flyball_contracts.records import NodeEvent

_LOG = logging.getLogger(__name__)
_RECOVERY = GPU.column("nvidia.gpu.recovery_action")


class Absent(NamedTuple):
    """Why a collector is not there, and what to do if it should be."""

    reason: str
    remedy: str


_REMEDIES = {
    "NVML_ERROR_LIBRARY_NOT_FOUND": "install NVIDIA's driver; in a container, start it with the NVIDIA runtime",
    "NVML_ERROR_DRIVER_NOT_LOADED": "load the driver: nvidia-smi must work for the same user",
    "NVML_ERROR_NO_PERMISSION": "give the agent's user access to /dev/nvidia*",
    "NVML_ERROR_LIB_RM_VERSION_MISMATCH": "driver and library differ after an update: reload the driver or reboot",
}


def open_nvml(node: str, root: Path = Path("/")) -> "NvmlCollector | Absent":
    """Collector of this node's GPUs, or why there is none; never raises."""
    try:
        nvml: Any = importlib.import_module("pynvml")
    except ImportError as error:
        return Absent(f"nvidia-ml-py is not installed ({error})", "pip install 'flyball[agent]'")
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        remedies = {getattr(nvml, name, None): remedy for name, remedy in _REMEDIES.items()}
        return Absent(f"NVML does not start: {error}", remedies.get(error.value, "see nvidia-smi"))
    try:
        count = int(nvml.nvmlDeviceGetCount())
        if count:
            return NvmlCollector(nvml, node, count, root)
        reason = "NVML sees no GPU"
    except nvml.NVMLError as error:
        reason = f"NVML does not tell the number of GPUs: {error}"
    nvml.nvmlShutdown()
    return Absent(reason, "nvidia-smi must list the GPUs for the same user")


class NvmlCollector:
    """GPUs through NVML, one row each in the order of :meth:`parts`.

    A GPU that does not answer keeps its row, all NaN. ``unreadable`` names those that did not even tell who
    they are when the agent started; they have no row.
    """

    name = "nvml"

    def __init__(self, nvml: Any, node: str, count: int, root: Path = Path("/")) -> None:
        self.readers: list[GpuReader] = []
        self.unreadable: list[str] = []
        self._nvml = nvml
        self._node = node
        self._events: list[NodeEvent] = []
        self._now_ns = 0
        self._recovery: list[int | None] = []
        for index in range(count):
            try:
                gate = Gate(nvml, nvml.nvmlDeviceGetHandleByIndex(index))
                self.readers.append(GpuReader(gate, identify(gate, index, root)))
            except (nvml.NVMLError, DeviceLost) as error:
                self.unreadable.append(f"GPU {index}: {error}")
                _LOG.warning("GPU %d of this node cannot be read and is left out: %s", index, error)
        self._parts = Parts(tuple(reader.device for reader in self.readers), _driver_version(nvml))
        self.watch = EventWatch(nvml, [reader.gate.handle for reader in self.readers])

    def read(self, now_ns: int, period_ns: int) -> list[Reading]:
        """One reading with a row for each GPU; a GPU lost or come back since the last read is an event."""
        self._now_ns = now_ns
        for what in self.unreadable:
            message = f"{what}; it has no row until the agent restarts"
            self._events.append(
                node_event(self._node, now_ns, "device_lost", severity="critical", remedy="drain", message=message)
            )
        self.unreadable = []
        values = np.full((len(self.readers), len(GPU)), np.nan, np.float32)
        for row, reader in enumerate(self.readers):
            was_lost = reader.lost
            values[row] = reader.read(period_ns)
            if reader.lost != was_lost:
                self._events.append(self._lost_or_back(reader, now_ns))
        actions = values[:, _RECOVERY]
        self._recovery = [None if np.isnan(action) else int(action) for action in actions]
        return [Reading(GPU.schema, values)] if self.readers else []

    def parts(self) -> Parts:
        """The GPUs, as they were at the start."""
        return self._parts

    def events(self) -> list[NodeEvent]:
        """Devices lost and back, XIDs, ECC errors and row remaps since the last call."""
        events, self._events = self._events, []
        for what, (first_ns, count) in self.watch.drain().items():
            events.append(self._event_of(what, first_ns, count))
        return events

    def close(self) -> None:
        """Stop the watch and leave NVML."""
        self.watch.close()
        if self._nvml is not None:
            try:
                self._nvml.nvmlShutdown()
            except self._nvml.NVMLError as error:
                _LOG.debug("NVML does not shut down: %s", error)
            self._nvml = None

    def _lost_or_back(self, reader: GpuReader, now_ns: int) -> NodeEvent:
        device = reader.device.id
        if reader.lost:
            message = "the GPU does not answer any more"
            return node_event(
                self._node, now_ns, "device_lost", severity="critical", device=device, remedy="drain", message=message
            )
        return node_event(self._node, now_ns, "device_added", device=device, message="the GPU answers again")

    def _event_of(self, what: Happening, first_ns: int, count: int) -> NodeEvent:
        device = self.readers[what.device].device.id
        often = f", {count} times" if count > 1 else ""
        if what.kind == XID:
            recovery = self._recovery[what.device] if what.device < len(self._recovery) else None
            verdict = verdict_of(what.data, recovery)
            return node_event(
                self._node,
                first_ns,
                "xid",
                severity=verdict.severity,
                device=device,
                code=what.data,
                remedy=verdict.remedy,
                message=f"XID {what.data}: {verdict.about}{often}",
            )
        if what.kind == UNCORRECTED_ECC:
            message = f"uncorrected ECC error{often}"
            return node_event(
                self._node, first_ns, "ecc", severity="critical", device=device, remedy="drain", message=message
            )
        failed = what.kind == ROW_RETIREMENT_FAILED
        return node_event(
            self._node,
            first_ns,
            "row_remap",
            severity="critical" if failed else "warning",
            device=device,
            remedy="reset_gpu" if failed else "notify",
            message=f"a row of memory could not be retired{often}" if failed else f"a row of memory was retired{often}",
        )


def _driver_version(nvml: Any) -> str:
    try:
        return str(nvml.nvmlSystemGetDriverVersion())
    except nvml.NVMLError:
        return ""
