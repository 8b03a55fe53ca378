"""Memory from ``/proc/meminfo`` and ``/proc/vmstat``."""

from pathlib import Path

from flyball_collectors.base import Values
from flyball_collectors.kernel import numbers, text_of

_MEMINFO = frozenset(
    ("MemTotal:", "MemFree:", "MemAvailable:", "Buffers:", "Cached:", "SwapTotal:", "SwapFree:", "SReclaimable:")
)
_VMSTAT = frozenset(("pgmajfault",))


def read_memory(root: Path) -> Values:
    """Memory and swap in bytes, and major page faults since boot.

    Used memory is neither free nor reclaimable cache, as ``free`` prints it.
    """
    kib = _table(root / "proc/meminfo", _MEMINFO)
    values: dict[str, float] = {}
    total, available = kib.get("MemTotal:"), kib.get("MemAvailable:")
    if total:
        values["system.memory.limit"] = total * 1024
    if available is not None:
        values["system.memory.linux.available"] = available * 1024
    if total and available is not None:
        values["system.memory.utilization"] = 1 - available / total
    cached = kib.get("Cached:")
    if cached is not None:
        values["system.memory.usage{state=cached}"] = cached * 1024
    free = kib.get("MemFree:")
    if total and free is not None and cached is not None:
        used = total - free - cached - kib.get("Buffers:", 0) - kib.get("SReclaimable:", 0)
        values["system.memory.usage{state=used}"] = max(used, 0) * 1024
    swap, swap_free = kib.get("SwapTotal:"), kib.get("SwapFree:")
    if swap is not None and swap_free is not None:
        values["system.paging.usage"] = (swap - swap_free) * 1024
    faults = _table(root / "proc/vmstat", _VMSTAT).get("pgmajfault")
    if faults is not None:
        values["system.paging.faults{type=major}"] = faults
    return values


def _table(path: Path, keys: frozenset[str]) -> dict[str, int]:
    """First number of each line whose first word is one of the keys."""
    table: dict[str, int] = {}
    for line in text_of(path).splitlines():
        word, _, rest = line.partition(" ")
        if word in keys and (number := numbers(rest.split()[:1])):
            table[word] = number[0]
    return table
