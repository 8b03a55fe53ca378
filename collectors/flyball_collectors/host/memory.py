"""Memory from ``/proc/meminfo`` and ``/proc/vmstat``."""

from pathlib import Path

from flyball_collectors.base import Values
from flyball_collectors.kernel import numbers, text_of


def read_memory(root: Path) -> Values:
    """Memory and swap in bytes, and major page faults since boot.

    In use is what is neither free nor reclaimable cache, as ``free`` prints it.
    """
    kib = _table(root / "proc/meminfo")
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
    faults = _table(root / "proc/vmstat").get("pgmajfault")
    if faults is not None:
        values["system.paging.faults{type=major}"] = faults
    return values


def _table(path: Path) -> dict[str, int]:
    """First number of each line by its first word."""
    table: dict[str, int] = {}
    for line in text_of(path).splitlines():
        words = line.split(maxsplit=2)
        if len(words) >= 2 and (number := numbers([words[1]])):
            table[words[0]] = number[0]
    return table
