"""Resource use of one control group of the host, from the files of cgroup version 2."""

import os
import re
from pathlib import Path
from typing import Any

from flyball_collectors.base import Values
from flyball_collectors.kernel import numbers, text_of

_PRESSURES = tuple(
    (f"{resource}.pressure", f"container.linux.psi.total_time{{resource={resource},stall=some}}")
    for resource in ("cpu", "memory", "io")
)
_STACKED = ("dm", "md", "loop")  # their bytes are counted on the disks below them
_MAJOR_MINOR = re.compile(r"\d{1,9}:\d{1,9}")
READ, WRITTEN = "container.disk.io{direction=read}", "container.disk.io{direction=write}"


class CgroupReader:
    """Reads control groups of a host of version 2."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._stacked: dict[str, bool] = {}

    def read(self, folder: Path) -> Values:
        """Values by key of the ``USAGE`` layout; unset limits and disabled controllers are left out.

        The working set is the charged memory less the inactive file cache, as in the kubelet. Bytes of stacked disks
        are left out, because the disks below count them again.
        """
        at = f"{folder}/"  # text, because making a Path costs more than reading the file
        values: dict[str, float | dict[str, float]] = {}
        cpu = text_of(at + "cpu.stat")
        put(values, "container.cpu.time", after("usage_usec", cpu), 1e-6)
        put(values, "container.cpu.throttled.time", after("throttled_usec", cpu), 1e-6)
        quota = numbers(text_of(at + "cpu.max").split())
        if len(quota) == 2 and quota[1] > 0:
            values["container.cpu.limit"] = quota[0] / quota[1]
        used = number(at + "memory.current")
        if used is not None:
            values["container.memory.usage"] = used
            idle = after("inactive_file", text_of(at + "memory.stat"))
            put(values, "container.memory.working_set", None if idle is None else max(used - idle, 0))
        put(values, "container.memory.limit", number(at + "memory.max"))
        put(values, "container.memory.oom", after("oom_kill", text_of(at + "memory.events")))
        for name, key in _PRESSURES:
            put(values, key, _stalled_us(at + name), 1e-6)
        put(values, "container.thread.count", number(at + "pids.current"))
        return values | self._disks(at + "io.stat")

    def _disks(self, path: str) -> dict[str, dict[str, float]]:
        """Bytes by disk; empty when the group has no I/O controller."""
        text = text_of(path)
        if not text and not os.path.exists(path):
            return {}
        read: dict[str, float] = {}
        written: dict[str, float] = {}
        for line in text.splitlines():
            disk, _, rest = line.partition(" ")
            counts: dict[str, str] = {}
            for word in rest.split():
                name, _, count = word.partition("=")
                counts[name] = count
            both = numbers((counts.get("rbytes", ""), counts.get("wbytes", "")))
            if both and not self.is_stacked(disk):
                read[disk], written[disk] = both
        return {READ: read, WRITTEN: written}

    def is_stacked(self, disk: str) -> bool:
        """Whether a disk's I/O is also counted on another disk below it, or it is no disk."""
        known = self._stacked.get(disk)
        if known is None:
            folder = self._root / "sys/dev/block" / disk
            known = _MAJOR_MINOR.fullmatch(disk) is None or any((folder / kind).exists() for kind in _STACKED)
            self._stacked[disk] = known
        return known


def put(values: dict[str, Any], key: str, value: float | None, scale: float = 1) -> None:
    """Set a value converted with ``scale`` to the metric's unit; nothing if it is unknown."""
    if value is not None:
        values[key] = value * scale


def number(path: str) -> int | None:
    """The single number in a file, ``None`` for the word ``max`` and if there is none."""
    found = numbers(text_of(path).split())
    return found[0] if found else None


def after(word: str, text: str) -> int | None:
    """Number after a word at the start of a line."""
    rest = f"\n{text}".partition(f"\n{word} ")[2]
    found = numbers((rest.partition("\n")[0],))
    return found[0] if found else None


def _stalled_us(path: str) -> int | None:
    """Time in which some task waited, from a pressure file."""
    for line in text_of(path).splitlines():
        if line.startswith("some "):
            total = numbers((line.rpartition("total=")[2],))
            return total[0] if total else None
    return None
