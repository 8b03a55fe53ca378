"""Uptime, processes, and resource use of the agent itself."""

import os
import resource
from contextlib import suppress
from pathlib import Path

from flyball_collectors.base import Values
from flyball_collectors.kernel import numbers, text_of

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def read_system(root: Path) -> Values:
    """Seconds since boot and number of processes."""
    values: dict[str, float] = {}
    fields = text_of(root / "proc/uptime").split()
    with suppress(IndexError, ValueError):
        values["system.uptime"] = float(fields[0])
    try:
        names = os.listdir(root / "proc")
    except OSError:
        names = []
    if processes := sum(name.isdigit() for name in names):
        values["system.process.count"] = processes
    return values


def read_self(_: Path) -> Values:
    """CPU time (s) and resident bytes of this process; always from the real ``/proc``, whatever the root."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    values: dict[str, float] = {"flyball.agent.cpu.time": usage.ru_utime + usage.ru_stime}
    pages = numbers(text_of(Path("/proc/self/statm")).split())
    if len(pages) > 1:
        values["flyball.agent.memory.rss"] = pages[1] * _PAGE_BYTES
    return values
