"""Changes one job step by step. Each step is safe to repeat, and the job itself shows its progress."""

from typing import NamedTuple

from flyball_actuators.platforms.base import Rejected
from flyball_actuators.platforms.slurm.checkpoint import checkpoint_of
from flyball_actuators.platforms.slurm.commands import Commands
from flyball_actuators.platforms.slurm.jobs import Job
from flyball_actuators.platforms.slurm.marks import Mark, marked
from flyball_actuators.platforms.slurm.reservations import KEPT_S, release_nodes, reserve_nodes

_NS = 1_000_000_000
SETTLE_S = 10
"""A requeued job that starts on its old node within a second of its end fails for good.

The node mistakes its credential for a revoked one. Slurm's own wait is two minutes, far longer than the job needs to
leave its nodes.
"""


class StepStatus(NamedTuple):
    """Status of a job: ``settled`` if nothing is left to do, ``lost`` if another user or program has changed it."""

    message: str
    settled: bool = False
    lost: bool = False


def set_mark(commands: Commands, job: Job, mark: Mark) -> Rejected | None:
    """Write a mark into a job's comment."""
    return commands.apply("scontrol", "update", f"JobId={job.key}", f"Comment={marked(job.comment, mark)}")


def stop(
    commands: Commands, job: Job, mark: Mark, now_ns: int, *, checkpoint: bool, pause: bool = False
) -> StepStatus | Rejected:
    """Take a job off its nodes and hold it, after a checkpoint if it supports one; with ``pause``, suspend it there."""
    release_nodes(commands, job)
    if job.ended:
        return StepStatus(f"{job.label} has ended", settled=True)
    if job.completing:
        return StepStatus(f"{job.label} is leaving {job.nodes}")
    if job.ready and job.restarts > mark.restarts:
        return StepStatus(f"{job.label} was started again, by a user or because its node failed", lost=True)
    if job.held or job.restarts > mark.restarts:
        return StepStatus(f"{job.label} is held", settled=True)
    if pause and job.suspended:
        return StepStatus(f"{job.label} is suspended on {job.nodes}, and keeps its GPUs", settled=True)
    if pause and job.ready:
        return commands.apply("scontrol", "suspend", job.key) or StepStatus(f"{job.label} is being suspended")
    if job.pending:
        return commands.apply("scontrol", "hold", job.key) or StepStatus(f"{job.label} was waiting and is held")
    if checkpoint and job.ready:
        pending = _checkpoint(commands, job, mark, now_ns)
        if pending is not None:
            return pending
    rejected = commands.apply("scontrol", "requeuehold", job.key)
    return rejected or StepStatus(f"{job.label} is requeued and held")


def start(commands: Commands, job: Job, mark: Mark, now_ns: int) -> StepStatus | Rejected:
    """Release a held job, or resume a suspended one; settled once it runs."""
    if job.ended or job.ready:
        release_nodes(commands, job)
    if job.ended:
        return StepStatus(f"{job.label} has ended", settled=True)
    if job.ready:
        return StepStatus(f"{job.label} runs on {job.nodes}", settled=True)
    if job.completing:
        return StepStatus(f"{job.label} is still leaving {job.nodes}")
    if job.suspended and mark.verb == "started":
        return StepStatus(f"{job.label} was suspended by another user or program", lost=True)
    if job.suspended:
        rejected = commands.apply("scontrol", "resume", job.key) or set_mark(
            commands, job, mark._replace(verb="started")
        )
        return rejected or StepStatus(f"{job.label} is resumed")
    if job.held and mark.verb == "started":
        release_nodes(commands, job)
        return StepStatus(f"{job.label} was held by another user", lost=True)
    if mark.verb == "start":
        kept = reserve_nodes(commands, job, mark.decision)
        rejected = release(commands, job, mark._replace(verb="started"), now_ns)
        return rejected or StepStatus(f"{job.label} is released{kept}")
    if job.eligible_s and now_ns // _NS > job.eligible_s + KEPT_S:
        release_nodes(commands, job)
    return StepStatus(f"{job.label} waits for room")


def release(commands: Commands, job: Job, mark: Mark, now_ns: int, *changes: str) -> Rejected | None:
    """Release a job that has left its nodes, with changes, and mark it; a requeued job starts ``SETTLE_S`` later."""
    early = job.restarts and job.eligible_s > now_ns // _NS + SETTLE_S
    soon = (f"StartTime=now+{SETTLE_S}",) if early else ()
    if soon or changes:
        rejected = commands.apply("scontrol", "update", f"JobId={job.key}", *changes, *soon)
        if rejected is not None:
            return rejected
    return commands.apply("scontrol", "release", job.key) or set_mark(commands, job, mark)


def _checkpoint(commands: Commands, job: Job, mark: Mark, now_ns: int) -> StepStatus | Rejected | None:
    """Send the checkpoint signal and wait; ``None`` once there is nothing to wait for."""
    if mark.due_s is not None:
        left_s = mark.due_s - now_ns // _NS
        return StepStatus(f"{job.label} writes a checkpoint, {left_s} s are left") if left_s > 0 else None
    method = checkpoint_of(commands, job)
    if method is None:
        return None
    due = mark._replace(due_s=now_ns // _NS + method.grace_s)
    rejected = method.send(commands, job) or set_mark(commands, job, due)
    return rejected or StepStatus(f"{job.label} was sent {method.signal} and has {method.grace_s} s for a checkpoint")
