"""Pods and jobs that have a control group on this node, and the processes in it."""

import os
from collections.abc import Iterable, Iterator
from glob import glob
from pathlib import Path

from flyball_collectors.attribution.owner import Owner, owner_of_path
from flyball_collectors.kernel import text_of

_DEEPEST = 3  # of the folders between a pattern and a pod: kubelet.slice, kubepods, quality of service


def find_groups(mount: Path, patterns: Iterable[str]) -> dict[Owner, Path]:
    """Folder of each pod and job among the folders of a pattern; the search does not descend into one."""
    return {
        owner._replace(path=""): mount / path.lstrip("/")
        for pattern in patterns
        for top in sorted(glob(pattern, root_dir=mount))
        for owner, path in _inside(os.fspath(mount), f"/{top}", _DEEPEST)
    }


def processes_in(group: Path) -> Iterator[int]:
    """Numbers of the processes in a control group and below it."""
    for folder, _, _ in os.walk(group):
        yield from (int(pid) for pid in text_of(f"{folder}/cgroup.procs").split() if pid.isdecimal() and pid != "0")


def _inside(mount: str, path: str, depth: int) -> Iterator[tuple[Owner, str]]:
    """Units at a path in the control group file system and below it; the search does not descend into one."""
    owner = owner_of_path(path)
    if owner is not None:
        yield owner, path
    elif depth:
        try:
            with os.scandir(mount + path) as entries:
                names = sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
        except OSError:
            return
        for name in names:
            yield from _inside(mount, f"{path}/{name}", depth - 1)
