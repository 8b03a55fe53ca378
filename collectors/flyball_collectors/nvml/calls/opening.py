"""Opens NVML, or reports why it cannot be opened."""

from pathlib import Path
from typing import NamedTuple

from flyball_collectors.nvml.calls.library import (
    DRIVER_NOT_LOADED,
    LIBRARY,
    LIBRARY_NOT_FOUND,
    NO_PERMISSION,
    VERSION_MISMATCH,
    Library,
    NvmlError,
)
from flyball_collectors.nvml.collector import NvmlCollector
from flyball_collectors.parameters import GpuParameters

_RESTART = "a unit of systemd that started before the driver was loaded must be restarted"
_REMEDIES = {
    NO_PERMISSION: f"give the agent's user access to /dev/nvidia*; {_RESTART}",
    DRIVER_NOT_LOADED: "load the driver: nvidia-smi must work for the same user",
    LIBRARY_NOT_FOUND: "install NVIDIA's driver; in a container, start it with the NVIDIA runtime",
    VERSION_MISMATCH: "driver and library differ after an update: reload the driver or reboot",
}


class Absent(NamedTuple):
    """Why a collector is absent, and the remedy if it should be there."""

    reason: str
    remedy: str


def open_nvml(
    node: str, root: Path = Path("/"), settings: GpuParameters | None = None, *, library: str = LIBRARY
) -> NvmlCollector | Absent:
    """Collector of this node's GPUs, or why there is none; never raises."""
    try:
        nvml = Library(library)
        nvml.start()
    except NvmlError as error:
        return Absent(f"NVML does not start: {error}", _REMEDIES.get(error.code, f"see nvidia-smi; {_RESTART}"))
    try:
        count = nvml.count()
        if count:
            return NvmlCollector(nvml, node, count, root, settings or GpuParameters())
        reason = "NVML sees no GPU"
    except NvmlError as error:
        reason = f"NVML does not report the number of GPUs: {error}"
    nvml.stop()
    return Absent(reason, "nvidia-smi must list the GPUs for the same user")
