"""The reported pods, jobs, containers and services, from one tick to the next."""

from collections.abc import Container, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from flyball_collectors.attribution.groups import find_groups
from flyball_collectors.attribution.owner import Owner, Runtime

Key = tuple[Runtime, str]


class Unit(NamedTuple):
    """One pod, job, container or service; ``folder`` is its control group, ``None`` if that is unreadable.

    ``devices`` are the ids of the devices that it holds.
    """

    owner: Owner
    folder: Path | None
    devices: frozenset[str] = frozenset()


def key_of(owner: Owner) -> Key:
    """Key of an owner's unit: independent of the container in a pod and the step of a job."""
    return owner.runtime, owner.unit


class Units:
    """The units of a node.

    A pod, job or container holds each device that it has used until its control group is gone, because devices are
    assigned for life and not used all the time. A service, a user, or a unit without a readable control group holds the
    devices that it uses now.
    """

    def __init__(self, mount: Path | None, patterns: Iterable[str], *, without_devices: bool = False) -> None:
        self._mount = mount
        self._patterns = tuple(patterns)
        self._without_devices = without_devices
        self._units: dict[Key, Unit] = {}

    def update(self, users: Mapping[Owner, Iterable[str]], named: Container[Key] = ()) -> dict[Key, Unit]:
        """The current units.

        ``users`` has the devices that each owner uses; ``named`` units are reported even without a device.
        """
        before, now = self._units, dict[Key, Unit]()
        using = {key_of(owner) for owner in users}
        for owner, folder in (find_groups(self._mount, self._patterns) if self._mount else {}).items():
            key = key_of(owner)
            held = before[key].devices if key in before else frozenset[str]()
            if held or key in using or key in named or self._without_devices:
                now[key] = Unit(owner, folder, held)
        for key, unit in before.items():
            kept = unit.devices and unit.owner.runtime != "process" and unit.folder is not None and unit.folder.is_dir()
            if key not in now and kept:
                now[key] = unit
        for owner, devices in users.items():
            key = key_of(owner)
            unit = now.get(key) or Unit(owner, self._folder(owner))
            now[key] = unit._replace(devices=unit.devices | frozenset(devices))
        self._units = now
        return now

    def _folder(self, owner: Owner) -> Path | None:
        folder = self._mount / owner.path.lstrip("/") if self._mount and owner.path else None
        return folder if folder is not None and folder.is_dir() else None
