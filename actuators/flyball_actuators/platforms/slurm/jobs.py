"""The jobs of a cluster, from ``squeue --json``. Each task of a job array is a job, also while pending."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, cast

import msgspec

from flyball_actuators.platforms.base import PlatformError
from flyball_actuators.platforms.slurm.commands import Commands
from flyball_actuators.platforms.slurm.marks import Mark, mark_of

_ENDED = frozenset(
    {
        "BOOT_FAIL",
        "CANCELLED",
        "COMPLETED",
        "DEADLINE",
        "FAILED",
        "LAUNCH_FAILED",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "PREEMPTED",
        "REVOKED",
        "TIMEOUT",
    }
)


_BESIDE = ("COMPLETING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT", "STOPPED", "REVOKED")
"""Flags that versions after 22.05 list beside a job's state, and 22.05 shows in its place: the first match counts."""
_RANGE = re.compile(r"(\d+)(?:-(\d+)(?::(\d+))?)?")


class Job(NamedTuple):
    """One job. It may start from ``eligible_s`` on; ``nodes``, ``excluded`` and ``required`` are host lists.

    ``task`` is its index in job array ``array``; ``array`` is 0 for a job outside arrays. Unchanged pending tasks share
    one record in Slurm and have no ``id``: 0. ``wide`` is its number of nodes, and ``part`` whether it belongs to a
    heterogeneous job.
    """

    id: int
    name: str
    user: str
    partition: str
    state: str
    priority: int
    restarts: int
    comment: str
    nodes: str
    excluded: str
    required: str
    start_s: int
    eligible_s: int
    requeue: bool
    batch: bool
    part: bool
    array: int = 0
    task: int = 0
    wide: int = 1
    reservation: str = ""

    @property
    def key(self) -> str:
        """Id in commands: ``ID``, or ``ARRAY_TASK``."""
        return f"{self.array}_{self.task}" if self.array else str(self.id)

    @property
    def order(self) -> tuple[int, int]:
        """Sort key: older jobs first, tasks by index."""
        return self.array or self.id, self.task

    @property
    def ended(self) -> bool:
        """Whether it has ended and is only remembered."""
        return self.state in _ENDED

    @property
    def completing(self) -> bool:
        """Whether it is leaving its nodes, to be requeued or to end."""
        return self.state == "COMPLETING"

    @property
    def pending(self) -> bool:
        """Whether it is pending, held or not."""
        return self.state in ("PENDING", "REQUEUE_HOLD", "REQUEUED", "SPECIAL_EXIT")

    @property
    def held(self) -> bool:
        """Whether it is held, or will be once it has left its nodes."""
        return self.priority == 0 and (self.pending or self.completing)

    @property
    def suspended(self) -> bool:
        """Whether it is suspended until it is resumed; a job that Slurm's own scheduler suspends keeps its priority."""
        return self.state == "SUSPENDED" and self.priority == 0

    @property
    def requested(self) -> bool:
        """Whether it counts as a requested replica: it runs, or will as soon as there is room."""
        return not (self.ended or self.completing or self.held or self.suspended)

    @property
    def ready(self) -> bool:
        """Whether it runs."""
        return self.state == "RUNNING"

    @property
    def mark(self) -> Mark | None:
        """The decision that changed it last."""
        return mark_of(self.comment)

    @property
    def label(self) -> str:
        """Its id and name, for messages."""
        return f"job {self.key} ({self.name})"


Queue = Mapping[str, Job]
"""Jobs by :attr:`Job.key`."""


def queue(commands: Commands) -> Queue:
    """All jobs that the controller knows, including those that have just ended."""
    text = commands.query("squeue", "--all", "--json")
    try:
        reply: dict[str, Any] = msgspec.json.decode(text)
        errors: list[Any] = reply.get("errors") or []
        if errors:
            raise PlatformError(f"squeue --json: {errors}")
        return {job.key: job for entry in reply["jobs"] for job in _jobs(entry)}
    except (msgspec.DecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise PlatformError(f"squeue --json: not the answer that is known from Slurm 22.05: {error!r}") from error


def nodes_of(commands: Commands, hosts: str) -> list[str]:
    """Nodes of a host list such as ``gpu[1-3]``."""
    if "[" not in hosts:
        return [node for node in hosts.split(",") if node]
    return commands.query("scontrol", "show", "hostnames", hosts).split()


def _jobs(entry: Mapping[str, Any]) -> Iterator[Job]:
    """The job of an entry, or its pending tasks."""
    job = _job(entry)
    waiting = str(entry.get("array_task_string") or "")
    if not (job.array and waiting):
        yield job
        return
    for part in waiting.partition("%")[0].split(","):
        found = _RANGE.fullmatch(part)
        if found is None:
            raise ValueError(f"array_task_string is {waiting!r}")
        first, last, step = found.groups()
        for task in range(int(first), int(last or first) + 1, int(step or 1)):
            yield job._replace(id=0, task=task)


def _job(entry: Mapping[str, Any]) -> Job:
    return Job(
        id=_number(entry["job_id"]),
        name=str(entry["name"]),
        user=str(entry["user_name"]),
        partition=str(entry["partition"]),
        state=_state(entry["job_state"]),
        priority=_number(entry["priority"]),
        restarts=_number(entry["restart_cnt"]),
        comment=str(entry.get("comment") or ""),
        nodes=str(entry.get("nodes") or ""),
        excluded=_hosts(entry.get("excluded_nodes")),
        required=_hosts(entry.get("required_nodes")),
        start_s=_number(entry.get("start_time")),
        eligible_s=_number(entry.get("eligible_time")),
        requeue=bool(entry["requeue"]),
        batch=bool(entry["batch_flag"]),
        part=bool(_number(entry.get("het_job_id"))),
        array=_number(entry.get("array_job_id")),
        task=_number(entry.get("array_task_id")),
        wide=_number(entry.get("node_count")) or 1,
        reservation=str(entry.get("resv_name") or ""),
    )


def _number(value: Any) -> int:
    """A number, plain or in the format of versions after 22.05; 0 if absent."""
    if isinstance(value, Mapping):
        return int(cast("Mapping[str, Any]", value).get("number") or 0)
    return int(value or 0)


def _state(value: Any) -> str:
    """The state, as one string or in the list format of versions after 22.05."""
    if isinstance(value, str):
        return value
    parts = [str(part) for part in value]
    return next((part for part in _BESIDE if part in parts), parts[0])


def _hosts(value: Any) -> str:
    """A host list, as text or as a list."""
    return value if isinstance(value, str) else ",".join(map(str, value or ()))
