"""The owners of processes, determined once per process."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from flyball_collectors.attribution.owner import Owner, owner_of
from flyball_collectors.kernel import numbers, text_of

_START = 19  # place of the start time after the command in /proc/PID/stat


class _Known(NamedTuple):
    start: int
    owner: Owner | None


class ProcessOwners:
    """Owners of processes, cached for as long as they are looked up at every tick.

    ``legacy``: the host has control groups of version 1.
    """

    def __init__(self, root: Path, *, legacy: bool = False) -> None:
        self._legacy = legacy
        self._proc = f"{root}/proc"
        self._known: dict[int, _Known] = {}

    def find(self, pids: Iterable[int]) -> dict[int, Owner]:
        """Owner of each process; unknown ones are left out.

        An ended process keeps its owner. If its number was reused by a process of another owner, it has no owner until
        the next call, because the measurements may belong to either.
        """
        known = {pid: self._look(pid) for pid in set(pids)}
        found: dict[int, Owner] = {}
        for pid, now in known.items():
            before = self._known.get(pid)
            reused = before is not None and now is not None and before.start != now.start
            if now is not None and now.owner is not None and not (reused and before and before.owner != now.owner):
                found[pid] = now.owner
        self._known = {pid: now for pid, now in known.items() if now is not None}
        return found

    def runs(self, pid: int) -> bool:
        """Whether a process has this number now."""
        return os.path.exists(f"{self._proc}/{pid}")

    def _look(self, pid: int) -> _Known | None:
        folder = f"{self._proc}/{pid}"
        before = self._known.get(pid)
        command, bracket, rest = text_of(f"{folder}/stat").rpartition(")")
        start = numbers(rest.split()[_START : _START + 1])
        if not bracket or not start:
            return before
        if before is not None and before.start == start[0] and before.owner is not None:
            return before
        owner = owner_of(text_of(f"{folder}/cgroup"), legacy=self._legacy)
        if owner is not None and not owner.unit:  # in no group of its own: it goes by its command
            owner = owner._replace(unit=command.partition("(")[2])
        return _Known(start[0], owner)
