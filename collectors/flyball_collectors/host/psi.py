"""Pressure stall information from ``/proc/pressure`` (Linux 4.20 and later, if enabled)."""

from pathlib import Path

from flyball_collectors.base import Values
from flyball_collectors.kernel import text_of

_STALLS = {"cpu": ("some",), "memory": ("some", "full"), "io": ("some", "full"), "irq": ("full",)}


def read_psi(root: Path) -> Values:
    """Seconds since boot in which some or all tasks waited for a resource."""
    values: dict[str, float] = {}
    for resource, stalls in _STALLS.items():
        for line in text_of(root / "proc/pressure" / resource).splitlines():
            stall, _, rest = line.partition(" ")
            total_us = rest.rpartition("total=")[2]
            if stall in stalls and total_us.isdigit():
                values[f"system.linux.psi.total_time{{resource={resource},stall={stall}}}"] = int(total_us) / 1e6
    return values
