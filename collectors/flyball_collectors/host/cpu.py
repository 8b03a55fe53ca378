"""CPU time from ``/proc/stat``."""

import os
from pathlib import Path

from flyball_collectors.base import Values
from flyball_collectors.kernel import numbers, text_of

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def read_cpu(root: Path) -> Values:
    """Time of all CPUs by mode in seconds since boot, and the number of CPUs.

    ``user`` holds nice, and the guests' time, which the kernel counts there too; ``system`` holds interrupts.
    """
    lines = [line.split() for line in text_of(root / "proc/stat").splitlines() if line.startswith("cpu")]
    if not lines:
        return {}
    values: dict[str, float] = {}
    if len(lines) > 1:  # the first is the sum of the others
        values["system.cpu.logical.count"] = len(lines) - 1
    times = numbers(lines[0][1:9])
    if len(times) == 8:
        user, nice, system, idle, iowait, irq, softirq, steal = (t / _TICKS_PER_S for t in times)
        values |= {
            "system.cpu.time{mode=user}": user + nice,
            "system.cpu.time{mode=system}": system + irq + softirq,
            "system.cpu.time{mode=idle}": idle,
            "system.cpu.time{mode=iowait}": iowait,
            "system.cpu.time{mode=steal}": steal,
        }
    return values
