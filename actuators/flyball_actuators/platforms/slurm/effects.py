"""What is done to one job, a step at a time. Each step is safe to repeat, and the job itself shows how far it is."""

from typing import NamedTuple

from flyball_actuators.platforms.base import Rejected
from flyball_actuators.platforms.slurm.checkpoint import checkpoint_of
from flyball_actuators.platforms.slurm.commands import Commands
from flyball_actuators.platforms.slurm.jobs import Job
from flyball_actuators.platforms.slurm.marks import Mark, marked
from flyball_actuators.platforms.slurm.reservations import KEPT_S, give_back, keep_room

_NS = 1_000_000_000
SETTLE_S = 10
"""A requeued job that starts on its old node within the second of its end has failed for good: that node takes its
credential for a revoked one. Slurm waits two minutes, which is long after the job has left its nodes."""


class Step(NamedTuple):
    """How far a job is: ``settled`` where nothing is left to do, ``lost`` where somebody else has commanded it."""

    words: str
    settled: bool = False
    lost: bool = False


def set_mark(commands: Commands, job: Job, mark: Mark) -> Rejected | None:
    """Write a mark into a job's comment."""
    return commands.tell("scontrol", "update", f"JobId={job.key}", f"Comment={marked(job.comment, mark)}")


def stop(commands: Commands, job: Job, mark: Mark, now_ns: int, *, checkpoint: bool) -> Step | Rejected:
    """Have a job leave its nodes and wait until it is released; first its checkpoint, if it can write one."""
    give_back(commands, job)
    if job.over:
        return Step(f"{job.label} has ended", settled=True)
    if job.completing:
        return Step(f"{job.label} is leaving {job.nodes}")
    if job.held or job.restarts > mark.restarts:
        return Step(f"{job.label} is held", settled=True)
    if job.pending:
        return commands.tell("scontrol", "hold", job.key) or Step(f"{job.label} was waiting and is held")
    if checkpoint and job.ready:
        waits = _checkpoint(commands, job, mark, now_ns)
        if waits is not None:
            return waits
    said = commands.tell("scontrol", "requeuehold", job.key)
    return said or Step(f"{job.label} is requeued and held")


def start(commands: Commands, job: Job, mark: Mark, now_ns: int) -> Step | Rejected:
    """Release a held job; done once it runs."""
    if job.over or job.ready:
        give_back(commands, job)
    if job.over:
        return Step(f"{job.label} has ended", settled=True)
    if job.ready:
        return Step(f"{job.label} runs on {job.nodes}", settled=True)
    if job.completing:
        return Step(f"{job.label} is still leaving {job.nodes}")
    if job.held and mark.verb == "started":
        give_back(commands, job)
        return Step(f"{job.label} was held by somebody else", lost=True)
    if mark.verb == "start":
        kept = keep_room(commands, job, mark.decision)
        said = release(commands, job, mark._replace(verb="started"), now_ns)
        return said or Step(f"{job.label} is released{kept}")
    if job.eligible_s and now_ns // _NS > job.eligible_s + KEPT_S:
        give_back(commands, job)
    return Step(f"{job.label} waits for room")


def release(commands: Commands, job: Job, mark: Mark, now_ns: int, *changes: str) -> Rejected | None:
    """Release a job that has left its nodes, with changes, and write that down; it starts ``SETTLE_S`` later."""
    early = job.restarts and job.eligible_s > now_ns // _NS + SETTLE_S
    soon = (f"StartTime=now+{SETTLE_S}",) if early else ()
    if soon or changes:
        said = commands.tell("scontrol", "update", f"JobId={job.key}", *changes, *soon)
        if said is not None:
            return said
    return commands.tell("scontrol", "release", job.key) or set_mark(commands, job, mark)


def _checkpoint(commands: Commands, job: Job, mark: Mark, now_ns: int) -> Step | Rejected | None:
    """Send the signal, and give it its time; ``None`` once there is nothing to wait for."""
    if mark.due_s is not None:
        left_s = mark.due_s - now_ns // _NS
        return Step(f"{job.label} writes a checkpoint, {left_s} s are left") if left_s > 0 else None
    known = checkpoint_of(commands, job)
    if known is None:
        return None
    due = mark._replace(due_s=now_ns // _NS + known.grace_s)
    said = known.send(commands, job) or set_mark(commands, job, due)
    return said or Step(f"{job.label} was sent {known.signal} and has {known.grace_s} s for a checkpoint")
