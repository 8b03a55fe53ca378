"""Discovery of this node's Slurm jobs by variables of their environment.

A job takes part when it sets ``FLYBALL_WORKLOAD``, the port ``FLYBALL_METRICS_PORT`` and ``FLYBALL_SERVER``, the server
whose series the page has. Further variables: ``FLYBALL_WORK`` (``requests`` or ``tokens``), ``FLYBALL_METRICS_PATH``
(``/metrics``), ``FLYBALL_MODEL`` (which of several on the page it is) and ``FLYBALL_REPLICA`` (by default the job and
the node). The page is read on loopback.

The variables have two sources. A task prolog (``infra/slurm/``) writes them to a file ``JOB.TASK``, for which the agent
needs no privilege, and which counts while its owner has a process in the job. The kernel shows the variables of each
process to the process's own user and to holders of CAP_SYS_PTRACE. A job exists as long as its control group does.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path

from flyball_collectors.attribution.groups import find_groups, processes_in
from flyball_collectors.attribution.users import JobUsers, user_of
from flyball_collectors.kernel import text_of
from flyball_collectors.parameters import SlurmParameters
from flyball_collectors.workload.discovery.base import DiscoveredReplica, Watch
from flyball_collectors.workload.discovery.slurm_node import NodeQuery

_PREFIX = "FLYBALL_"
# Version 2 of the control groups, then version 1, where each controller has a tree.
_GROUPS = ("system.slice/*slurmstepd.scope", "*/slurm*")
# Any user with a job here may write files and set variables; each replica costs a thread.
_MOST_FILES, _MOST_BYTES, _MOST_REPLICAS, _LONGEST = 4096, 1 << 18, 256, 253

Variables = Mapping[str, str]


def variables_of(text: str) -> dict[str, str]:
    """Flyball's variables in ``NAME=value`` text, one to a line or divided by NUL as in ``/proc/PID/environ``."""
    pairs = (line.partition("=") for line in text.replace("\0", "\n").splitlines() if line.startswith(_PREFIX))
    return {name: value.strip() for name, equal, value in pairs if equal and len(value) <= _LONGEST}


def find_jobs(root: Path) -> dict[str, Path]:
    """Control group of each Slurm job on a host, by the job's number."""
    found = find_groups(root / "sys/fs/cgroup", _GROUPS)
    return {owner.unit: folder for owner, folder in found.items() if owner.runtime == "slurm"}


def replicas_of(job: str, node: str, announced: Iterable[Variables], user: str = "") -> Iterator[DiscoveredReplica]:
    """The replicas of a job of a user, one for each port, whichever process announced it."""
    by_page = {
        (one["FLYBALL_WORKLOAD"], one.get("FLYBALL_METRICS_PORT", "")): one
        for one in announced
        if one.get("FLYBALL_WORKLOAD")
    }
    names = [one.get("FLYBALL_REPLICA") or f"{job}.{node}" for one in by_page.values()]
    for ((workload, port), one), name in zip(by_page.items(), names, strict=True):
        path = "/" + one.get("FLYBALL_METRICS_PATH", "/metrics").lstrip("/")
        usable = port.isdecimal() and 0 < int(port) < 65536 and not set(path) & set("?# ")
        yield DiscoveredReplica(
            runtime="slurm",
            workload=workload,
            replica=name if names.count(name) == 1 else f"{name}.{port}",
            labels=(("job", job), *((("user", user),) if user else ())),
            url=f"http://127.0.0.1:{port}{path}" if usable else "",
            server=one.get("FLYBALL_SERVER", ""),
            work=one.get("FLYBALL_WORK", "requests"),
            model=one.get("FLYBALL_MODEL", ""),
        )


class JobWatch(Watch):
    """Checks the control groups; the kernel blocks readers of the environment of a process that hangs in the kernel.

    Where ``scontrol`` is installed, it shows whether the node is drained.
    """

    warning = "what Slurm jobs announce: %s"

    def __init__(self, settings: SlurmParameters, node: str, root: Path) -> None:
        self._node = node
        self._query = NodeQuery(settings, node)
        self._root = root
        self._users = JobUsers(root)
        self._folder = root / settings.folder.lstrip("/")
        super().__init__("slurm-jobs", settings.period_s, 1.0)

    def close(self) -> None:
        """End the thread and a running query."""
        super().close()
        self._query.close()

    def _look(self) -> tuple[tuple[DiscoveredReplica, ...], str]:
        self.errors += self._query.look()
        self.node = self._query.state or self.node
        found, problem = self._look_for_jobs()
        return found, problem or self._query.problem

    def _look_for_jobs(self) -> tuple[tuple[DiscoveredReplica, ...], str]:
        jobs = find_jobs(self._root)
        job_users = self._users.find(jobs)
        written = self._written()
        opened = False
        found: list[DiscoveredReplica] = []
        foreign: list[str] = []
        for job, group in sorted(jobs.items()):
            processes = [f"{self._root}/proc/{pid}" for pid in processes_in(group)]
            environs = [text_of(f"{process}/environ", _MOST_BYTES) for process in processes]
            opened = opened or any(environs)
            files = (written or {}).get(job, [])
            users = {user_of(process) for process in processes} if files else set[int | None]()
            announced = [variables for owner, variables in files if owner in users]
            if processes and len(announced) < len(files):
                foreign.append(job)
            announced += [variables_of(text) for text in environs]
            found += replicas_of(job, self._node, announced, job_users.get(job, ""))
        if len(found) > _MOST_REPLICAS:
            return tuple(found[:_MOST_REPLICAS]), f"{len(found)} replicas; those after {_MOST_REPLICAS} are left out"
        if foreign:
            problem = f"{self._folder} has files of job {foreign[0]} from users who have no process in it"
            return tuple(found), f"{problem} that the agent can see; they do not count: let its task prolog write them"
        if not jobs or opened or written is not None:
            return tuple(found), ""
        problem = f"{self._folder} cannot be listed, and the environment of jobs is not ours to read"
        return (), f"{problem}; install infra/slurm/task-prolog, or give the agent CAP_SYS_PTRACE"

    def _written(self) -> dict[str, list[tuple[int, dict[str, str]]]] | None:
        """Owners of the files and the variables in them, by job; ``None`` without the folder."""
        try:
            with os.scandir(self._folder) as entries:  # a pipe would block its reader
                files = sorted(one.path for one in islice(entries, _MOST_FILES) if one.is_file(follow_symlinks=False))
        except OSError:
            return None
        announced: dict[str, list[tuple[int, dict[str, str]]]] = {}
        for file in files:
            job, owner = os.path.basename(file).partition(".")[0], user_of(file)
            if owner is not None:
                announced.setdefault(job, []).append((owner, variables_of(text_of(file, _MOST_BYTES))))
        return announced
