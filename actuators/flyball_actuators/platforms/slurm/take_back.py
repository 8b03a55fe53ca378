"""Takes back a stop or a move while all of its jobs write their checkpoints: they run on, without the mark."""

from flyball_actuators.platforms.base import Failed, Progress, Running
from flyball_actuators.platforms.slurm.commands import Commands
from flyball_actuators.platforms.slurm.jobs import Job, queue
from flyball_actuators.platforms.slurm.marks import unmarked
from flyball_actuators.platforms.slurm.operation import Operation


def take_back(commands: Commands, operation: Operation) -> Progress | None:
    """Remove the marks; ``None`` if a job has left its nodes or waited for some, or a node was drained for the move."""
    known = queue(commands)
    jobs = [job for key in operation.keys if (job := known.get(key)) is not None]
    untouched = bool(jobs) and len(jobs) == len(operation.keys) and all(_runs_on(job, operation) for job in jobs)
    if operation.drain or operation.serve or not untouched:
        return None
    for job in jobs:
        if job.mark is not None:
            rejected = commands.apply("scontrol", "update", f"JobId={job.key}", f"Comment={unmarked(job.comment)}")
            if rejected is not None:
                return Running(rejected.detail)
    return Failed("nothing was stopped, and the jobs run on")


def _runs_on(job: Job, operation: Operation) -> bool:
    """Whether a job runs as it did; a mark may have been removed before the actuator died."""
    mark = job.mark
    if mark is None:
        return job.ready
    return job.ready and mark.decision == operation.decision and job.restarts == mark.restarts
