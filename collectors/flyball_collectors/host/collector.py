"""Fills the one row of the ``HOST`` layout from the sources beside this file."""

from collections.abc import Callable, Mapping
from pathlib import Path

from flyball_collectors.base import NAN, Collector, Counters, Parts, Reading, Values, fill_row
from flyball_collectors.host.clock import read_clock
from flyball_collectors.host.cpu import read_cpu
from flyball_collectors.host.disk import read_disk
from flyball_collectors.host.energy import EnergyMeter
from flyball_collectors.host.memory import read_memory
from flyball_collectors.host.network import read_network
from flyball_collectors.host.psi import read_psi
from flyball_collectors.host.system import read_self, read_system
from flyball_contracts.metrics import HOST

SOURCES: Mapping[str, Callable[[Path], Values]] = {
    "cpu": read_cpu,
    "memory": read_memory,
    "psi": read_psi,
    "disk": read_disk,
    "network": read_network,
    "system": read_system,
    "clock": read_clock,
    "self": read_self,
}
# An interface keeps its counts when it gets another name or comes back from a container, and so does a port that could
# not be read once.
_WANDERING = ("system.network.",)
_MODES = [HOST.column(f"system.cpu.time{{mode={mode}}}") for mode in ("user", "system", "steal", "idle", "iowait")]
_UTILIZATION = HOST.column("system.cpu.utilization")


class HostCollector(Collector):
    """The host that the agent runs on, or the one whose ``/proc`` and ``/sys`` are under ``root``."""

    name = "host"

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._counters = Counters(_WANDERING)
        self._energy = EnergyMeter(root)
        cpu, memory = read_cpu(root), read_memory(root)
        self._parts = Parts(
            cpu_count=_whole(cpu.get("system.cpu.logical.count")),
            memory_bytes=_whole(memory.get("system.memory.limit")),
        )

    def read(self, now_ns: int, period_ns: int) -> list[Reading]:
        """One row; NaN if the kernel has no value."""
        found: dict[str, float | Mapping[str, float]] = {}
        for source in SOURCES.values():
            found.update(source(self._root))
        found.update(self._energy.read())
        row = fill_row(HOST, found, self._counters)
        *busy, idle, iowait = (float(row[mode]) for mode in _MODES)
        total = sum(busy) + idle + (iowait if iowait == iowait else 0.0)  # the kernel's iowait sometimes falls
        row[_UTILIZATION] = sum(busy) / total if total > 0 else NAN
        return [Reading(HOST.schema, row.reshape(1, -1))]

    def parts(self) -> Parts:
        """Number of CPUs and bytes of memory, as they were at the start."""
        return self._parts


def _whole(value: float | Mapping[str, float] | None) -> int | None:
    return int(value) if isinstance(value, (int, float)) else None
