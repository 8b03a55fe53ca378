"""Finds the jobs that run a workload, by comment or by name."""

import hashlib
import re
from collections.abc import Iterable

from flyball_actuators.platforms.base import Rejected
from flyball_actuators.platforms.slurm.jobs import Job, Queue

_KEY = re.compile(r"[0-9]+(?:_[0-9]+)?")
COMMENT = "flyball.dev/workload="
BY_ID = "slurm/"


def claimed(job: Job) -> str:
    """Workload that a job's comment names; empty if it names none."""
    return next((word.removeprefix(COMMENT) for word in job.comment.split() if word.startswith(COMMENT)), "")


def runs(job: Job, workload: str) -> bool:
    """Whether a job runs a workload: its comment counts, else its name; ``slurm/ID`` is the job with that id.

    An array has its own id; a single task is ``slurm/ARRAY_TASK``.
    """
    claim = claimed(job)
    return claim == workload if claim else workload in (job.name, *(f"{BY_ID}{n}" for n in (job.key, job.array) if n))


def jobs_of(queue: Queue, workload: str, partitions: tuple[str, ...]) -> list[Job] | Rejected:
    """Running, pending, held and suspended jobs of a workload in some partitions, by id; ``Rejected`` without any."""
    found = [
        job
        for job in sorted(queue.values(), key=lambda job: job.order)
        if (job.requested or job.held or job.suspended)
        and set(job.partition.split(",")) <= set(partitions)
        and runs(job, workload)
    ]
    if not found:
        return Rejected(
            "unknown_target",
            f"no job in partition {', '.join(partitions)} runs workload {workload!r}; submit it with "
            f"--job-name={workload} or --comment={COMMENT}{workload}, or name its partition in actuator.platforms",
        )
    users = {job.user: job for job in found}
    if len(users) > 1:
        who = " and ".join(f"{job.label} of {user}" for user, job in sorted(users.items()))
        return Rejected(
            "invalid",
            f"{who} both claim workload {workload!r}; only one user may: name the jobs of the other differently",
        )
    parts = [job for job in found if job.part]
    if parts:
        return Rejected(
            "unsupported",
            f"{parts[0].label} is part of a heterogeneous job, which Flyball does not command; submit each replica as "
            "a job of its own",
        )
    return found


def version_of(jobs: Iterable[Job]) -> str:
    """Version of the jobs; changes only when they are modified, not when they start."""
    claim = "\n".join(f"{job.key} {job.restarts} {job.held} {job.suspended} {job.mark or ''}" for job in jobs)
    return hashlib.sha256(claim.encode()).hexdigest()[:16]


def key_of(replica: str) -> str | None:
    """Key of a replica's job, ``ID`` or ``ARRAY_TASK``; ``None`` if the replica names none."""
    key = replica.partition(".")[0]
    return key if _KEY.fullmatch(key) else None


def job_of_replica(jobs: Iterable[Job], replica: str) -> Job | None:
    """Job of a replica; agents name a running array task by its own id."""
    key = key_of(replica)
    return next((job for job in jobs if key in (job.key, str(job.id))), None)
