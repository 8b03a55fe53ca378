"""The NUMA nodes of the host, one row each."""

import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from flyball_collectors.base import Collector, Counters, Parts, Reading, fill_row
from flyball_collectors.kernel import numbers, text_of
from flyball_contracts.metrics import NUMA
from flyball_contracts.records import NumaNode

_PAGES = {
    key: f"system.linux.numa.pages{{state={state}}}"
    for key, state in (("numa_hit", "hit"), ("numa_miss", "miss"), ("numa_foreign", "foreign"))
}
_NODE = re.compile(r"node(\d+)")
_CPU = re.compile(r"cpu(\d+)")
_MOST_CPUS = 1 << 16
_UTILIZATION = NUMA.column("system.cpu.utilization")


class NumaCollector(Collector):
    """NUMA nodes as they were at the start.

    A host with a single one has no rows: they would repeat the host's row.
    """

    name = "numa"

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        found = {int(match[1]): folder for folder in _folders(root) if (match := _NODE.fullmatch(folder.name))}
        self._folders = [found[number] for number in sorted(found)] if len(found) > 1 else []
        self._cpus = [cpus_of_list(text_of(folder / "cpulist")) for folder in self._folders]
        self._counters = [Counters() for _ in self._folders]
        self._times: dict[int, tuple[int, int]] = {}
        nodes = zip(sorted(found), self._folders, self._cpus, strict=False)
        self._parts = Parts(
            numa=tuple(
                NumaNode(id=number, cpu_count=len(cpus), memory_bytes=_memory(folder).get("MemTotal", 0))
                for number, folder, cpus in nodes
            )
        )

    def read(self, now_ns: int, period_ns: int) -> list[Reading]:
        """A row for each NUMA node; no reading on a host with only one."""
        if not self._folders:
            return []
        before, self._times = self._times, _cpu_times(self._root)
        values = np.stack([self._row(row) for row in range(len(self._folders))])
        for row, cpus in enumerate(self._cpus):
            known = cpus & before.keys() & self._times.keys()
            busy, total = (sum(self._times[cpu][i] - before[cpu][i] for cpu in known) for i in (0, 1))
            if 0 <= busy <= total > 0:
                values[row, _UTILIZATION] = busy / total
        return [Reading(NUMA.schema, values)]

    def parts(self) -> Parts:
        """The NUMA nodes with their CPUs and memory."""
        return self._parts

    def _row(self, row: int) -> NDArray[np.float32]:
        folder = self._folders[row]
        memory = _memory(folder)
        found: dict[str, float] = {}
        if "MemTotal" in memory:
            found["system.memory.limit"] = memory["MemTotal"]
        if "MemFree" in memory:
            found["system.memory.usage{state=free}"] = memory["MemFree"]
        if "MemUsed" in memory:
            found["system.memory.usage{state=used}"] = memory["MemUsed"]
        found["system.cpu.logical.count"] = len(self._cpus[row])
        for line in text_of(folder / "numastat").splitlines():
            name, _, rest = line.partition(" ")
            if name in _PAGES and (pages := numbers(rest.split()[:1])):
                found[_PAGES[name]] = pages[0]
        return fill_row(NUMA, found, self._counters[row])


def cpus_of_list(text: str) -> frozenset[int]:
    """CPUs of a kernel list such as ``0-3,8,10-11``; invalid parts are left out."""
    cpus: set[int] = set()
    for part in text.strip().split(","):
        ends = numbers(part.split("-"))
        if len(ends) in (1, 2) and 0 <= ends[0] <= ends[-1] < _MOST_CPUS:
            cpus.update(range(ends[0], ends[-1] + 1))
    return frozenset(cpus)


def _folders(root: Path) -> list[Path]:
    try:
        return list((root / "sys/devices/system/node").iterdir())
    except OSError:
        return []


def _memory(folder: Path) -> dict[str, int]:
    """Bytes by name from ``meminfo``, whose lines are ``Node 0 MemTotal: 16 kB``."""
    found: dict[str, int] = {}
    for line in text_of(folder / "meminfo").splitlines()[:3]:
        fields = line.split()
        kib = numbers(fields[3:4])
        if kib:
            found[fields[2].rstrip(":")] = kib[0] * 1024
    return found


def _cpu_times(root: Path) -> dict[int, tuple[int, int]]:
    """Busy and total time of each CPU, in jiffies; user time includes guests, waiting is not busy."""
    times: dict[int, tuple[int, int]] = {}
    for line in text_of(root / "proc/stat").splitlines():
        if not line.startswith("cpu"):
            break
        name, *fields = line.split()
        match = _CPU.fullmatch(name)
        jiffies = numbers(fields[:8])
        if match and len(jiffies) == 8:
            total = sum(jiffies)
            times[int(match[1])] = (total - jiffies[3] - jiffies[4], total)
    return times
