"""Resource use of one control group on a host of version 1, or of both versions at once (hybrid)."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from flyball_collectors.base import Values
from flyball_collectors.host.cgroup import READ, WRITTEN, CgroupReader, after, number, put
from flyball_collectors.kernel import numbers, text_of

_CONTROLLERS = ("cpuacct", "cpu", "memory", "blkio", "pids")
_UNLIMITED = 1 << 62  # the kernel writes the largest multiple of a page
_BYTES = ("blkio.throttle.io_service_bytes_recursive", "blkio.throttle.io_service_bytes")  # the second before 5.0
_WAYS = {"Read": READ, "Write": WRITTEN}


class Hierarchy(NamedTuple):
    """The control groups of a host: ``groups`` has a folder for each, ``legacy`` means version 1."""

    groups: Path
    legacy: bool


def hierarchy_of(root: Path) -> Hierarchy | None:
    """Version 2 if it is mounted by itself, else a controller of version 1; ``None`` if neither is mounted."""
    mount = root / "sys/fs/cgroup"
    if (mount / "cgroup.controllers").is_file():
        return Hierarchy(mount, legacy=False)
    folders = _folders(mount)
    found = next((folders[name] for name in ("memory", "cpuacct", "cpu", "pids") if name in folders), None)
    return None if found is None else Hierarchy(found, legacy=True)


class LegacyReader:
    """Reads control groups of version 1, which have a folder of the same name below each controller.

    Metrics that version 1 lacks, such as controllers mounted as version 2 and pressures, are read from the group of
    that name in ``unified``.
    """

    def __init__(self, root: Path, groups: Path) -> None:
        mount = root / "sys/fs/cgroup"
        self._groups = groups
        self._folders = {name: f"{folder}/" for name, folder in _folders(mount).items()}
        self._second = CgroupReader(root)
        self._unified = mount / "unified"

    def read(self, folder: Path) -> Values:
        """Values by key of the ``USAGE`` layout of the group with this folder in ``groups``; see CgroupReader."""
        name = str(folder.relative_to(self._groups))
        values = dict(self._second.read(self._unified / name))
        at = {controller: f"{mount}{name}/" for controller, mount in self._folders.items()}
        if "cpuacct" in at:
            put(values, "container.cpu.time", number(at["cpuacct"] + "cpuacct.usage"), 1e-9)
        if "cpu" in at:
            put(values, "container.cpu.throttled.time", after("throttled_time", text_of(at["cpu"] + "cpu.stat")), 1e-9)
            quota, period = (number(f"{at['cpu']}cpu.cfs_{word}_us") for word in ("quota", "period"))
            if quota is not None and period and quota > 0:
                values["container.cpu.limit"] = quota / period
        if "memory" in at:
            self._memory(values, at["memory"])
        if "pids" in at:
            put(values, "container.thread.count", number(at["pids"] + "pids.current"))
        return values | (self._disks(at["blkio"]) if "blkio" in at else {})

    def _memory(self, values: dict[str, float | Mapping[str, float]], at: str) -> None:
        used, limit = number(at + "memory.usage_in_bytes"), number(at + "memory.limit_in_bytes")
        if used is not None:
            values["container.memory.usage"] = used
            idle = after("total_inactive_file", text_of(at + "memory.stat"))  # with that of the groups inside
            put(values, "container.memory.working_set", None if idle is None else max(used - idle, 0))
        put(values, "container.memory.limit", None if limit is None or limit >= _UNLIMITED else limit)
        put(values, "container.memory.oom", after("oom_kill", text_of(at + "memory.oom_control")))

    def _disks(self, at: str) -> dict[str, dict[str, float]]:
        """Bytes by disk; empty if the group has none of the files."""
        text = next((text for name in _BYTES if (text := text_of(at + name))), "")
        if not text:
            return {}
        found: dict[str, dict[str, float]] = {READ: {}, WRITTEN: {}}
        for line in text.splitlines():
            words = line.split()
            count = numbers(words[2:])
            if len(words) == 3 and words[1] in _WAYS and count and not self._second.is_stacked(words[0]):
                found[_WAYS[words[1]]][words[0]] = count[0]
        return found


def reader_of(root: Path) -> CgroupReader | LegacyReader:
    """Reader of a host's control groups."""
    found = hierarchy_of(root)
    return LegacyReader(root, found.groups) if found is not None and found.legacy else CgroupReader(root)


def _folders(mount: Path) -> dict[str, Path]:
    """Folder of each controller of version 1; several controllers may share one, ``cpu,cpuacct``."""
    try:
        entries = sorted(entry for entry in mount.iterdir() if entry.is_dir())
    except OSError:
        return {}
    return {name: entry for entry in entries for name in entry.name.split(",") if name in _CONTROLLERS}
