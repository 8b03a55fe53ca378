"""The users of Slurm jobs."""

import os
from collections.abc import Mapping
from itertools import islice
from pathlib import Path

from flyball_collectors.attribution.groups import processes_in

_MOST = 256  # processes of a job; one that does not show its user is looked at again at every tick
_ROOT = 0  # Slurm's own processes in a job, and processes that hide their user from others


class JobUsers:
    """Users of jobs as the kernel shows them: a job belongs to the only user, besides root, with processes in it.

    A user is known for as long as the job is looked up at every call.
    """

    def __init__(self, root: Path) -> None:
        self._proc = f"{root}/proc"
        self._known: dict[str, str] = {}

    def find(self, jobs: Mapping[str, Path]) -> dict[str, str]:
        """The number of each job's user; a job is left out while the processes in its control group do not show it."""
        found = {job: self._known.get(job) or self._user_of(group) for job, group in jobs.items()}
        self._known = {job: user for job, user in found.items() if user}
        return self._known

    def _user_of(self, group: Path) -> str:
        users: set[int] = set()
        for pid in islice(processes_in(group), _MOST):
            user = user_of(f"{self._proc}/{pid}")
            if user is not None and user != _ROOT:
                users.add(user)
            if len(users) > 1:
                break
        return str(users.pop()) if len(users) == 1 else ""


def user_of(path: str) -> int | None:
    """User of a file, or of a process by its folder; ``None`` if it is gone."""
    try:
        return os.lstat(path).st_uid
    except OSError:
        return None
