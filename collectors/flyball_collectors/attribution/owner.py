"""The owner of a process, from the text of its ``/proc/PID/cgroup``."""

import re
from functools import lru_cache
from typing import Literal, NamedTuple

Runtime = Literal["kubernetes", "slurm", "container", "process"]

_UUID = r"[0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}"
# A static pod has a hash instead of a UUID; systemd allows no dashes in the UUID, so they are underscores there.
_POD = re.compile(rf"(?:^|[/-])pod({_UUID}|[0-9a-f]{{32}})(?:\.slice)?(?=[/:]|$)")
_JOB = re.compile(r"(?:^|/)(?:slurm(?:_[^/]+)?|(?:[^/]*_)?slurmstepd\.scope)(?:/uid_\d+)?/job_(\w+)(?:/step_([^/]+))?")
# The control groups of monitors (conmon) have the container's id, too, but are not the container's.
_CONTAINER = re.compile(r"(?:^|[/:])(?:(?!(?:[a-z]+-)?conmon-)[a-z][a-z0-9_.-]*-)?([0-9a-f]{64})(?:\.scope)?(?=[/:]|$)")
_LXC = re.compile(r"(?:^|/)(?:lxc\.payload\.|lxc/)([^/]+)")
_USER = re.compile(r"(?:^|/)(user-\d+\.slice)(?=/|$)")
_UP = re.compile(r"^(/\.\.)+")
_UNIT = re.compile(r"[^/]+\.(?:service|scope)$")


class Owner(NamedTuple):
    """The unit that a process belongs to.

    ``unit`` is the pod's UID with dashes, the job's id, the container's id, or the service, user or group of anything
    else; ``part`` is the container in a pod or the step in a job, empty if unknown. ``path`` is the control group of
    the unit, empty if it is not in the version in use. If the reader has a control group namespace of its own, the path
    is relative to that, ``/../../kubepods.slice/..``, and may lack its first folders.
    """

    runtime: Runtime
    unit: str
    part: str = ""
    path: str = ""


def owner_of(text: str, *, legacy: bool = False) -> Owner | None:
    """Owner of a process by its control groups, ``None`` if the text has none; never raises.

    The path of version 2 has priority, then the others in the order of the text: on a host of version 1 a process has a
    group for each controller, and some of them are not its unit's own. A job has priority over a pod, because Slurm may
    run inside of one, and both over a container; of nested ones the outermost counts. On a host of version 1
    (``legacy``) the group has the same path below each controller of the unit.
    """
    paths: list[str] = []
    unified = ""
    for line in text.splitlines():
        number, _, rest = line.partition(":")
        controllers, colon, path = rest.partition(":")
        if not (colon and number.isdecimal() and path.startswith("/")):
            continue
        path = path.removesuffix(" (deleted)")
        if number == "0" and not controllers:
            unified = path
            paths.insert(0, path)
        else:
            paths.append(path)
    if not paths:
        return None
    for find in (_job, _pod, _container):
        for path in paths:
            owner = find(path)
            if owner is not None:
                return _with_path(owner, legacy or path == unified)
    path = max((unified, *paths), key=lambda each: each != "/" and each != "")
    return _with_path(_other(path), legacy or path == unified)


@lru_cache(maxsize=1024)  # the same folders are looked up at every tick
def owner_of_path(path: str) -> Owner | None:
    """Pod or job whose own control group is at ``path``, ``None`` for any other."""
    owner = _job(path) or _pod(path)
    return owner if owner is not None and owner.path == path else None


def _with_path(owner: Owner, read: bool) -> Owner:
    """Clear the path if it is not in the version in use, and strip leading parent folders."""
    return owner._replace(path=_UP.sub("", owner.path) if read else "")


def _pod(path: str) -> Owner | None:
    pod = _POD.search(path)
    if pod is None:
        return None
    container = _CONTAINER.search(path, pod.end())
    shared = path[pod.end() : pod.end() + 1] == ":"  # the runtime made no group for the pod
    return Owner(
        "kubernetes", pod[1].replace("_", "-"), container[1] if container else "", "" if shared else path[: pod.end()]
    )


def _job(path: str) -> Owner | None:
    job = _JOB.search(path)
    return None if job is None else Owner("slurm", job[1], job[2] or "", path[: job.end(1)])


def _container(path: str) -> Owner | None:
    container = _CONTAINER.search(path)
    if container is not None:
        return Owner("container", container[1], "", path[: container.end()])
    named = _LXC.search(path)
    return None if named is None else Owner("container", named[1], "", path[: named.end()])


def _other(path: str) -> Owner:
    """Processes of a user are one unit, as are those of a service; all others are named by their group."""
    user = _USER.search(path)
    if user is not None:
        return Owner("process", user[1], "", path[: user.end()])
    parts = path.split("/")
    for place, name in enumerate(parts):
        if _UNIT.fullmatch(name):
            return Owner("process", name, "", "/".join(parts[: place + 1]))
    return Owner("process", parts[-1], "", path)
