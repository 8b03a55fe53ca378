"""Moves a job off a node: requeue and hold it, exclude the node, release it.

If a failing device is the reason, the node is drained first, so that no new job starts there.
"""

import re

from flyball_actuators.platforms.base import Done, Failed, Handle, Progress, Rejected, Running, Superseded
from flyball_actuators.platforms.slurm.commands import Commands
from flyball_actuators.platforms.slurm.effects import StepStatus, release, set_mark, stop
from flyball_actuators.platforms.slurm.jobs import Job, nodes_of, queue
from flyball_actuators.platforms.slurm.marks import Mark
from flyball_actuators.platforms.slurm.operation import Operation
from flyball_actuators.platforms.slurm.targets import job_of_replica
from flyball_contracts.records import Migrate, SubjectState

GIVE_UP_S = 900.0
_NS = 1_000_000_000
_STATE = re.compile(r"\bState=(\S+)")


def migrate(commands: Commands, jobs: list[Job], decision: Migrate, now_ns: int, *, dry_run: bool) -> Handle | Rejected:
    """Mark the job, then begin."""
    job = job_of_replica(jobs, decision.replica)
    if job is None or not job.ready or decision.from_node not in nodes_of(commands, job.nodes):
        return Rejected("conflict", f"replica {decision.replica} does not run on {decision.from_node}; decide again")
    problem = _possible(commands, job, decision)
    if problem is not None:
        return problem
    replicas = sum(one.requested for one in jobs)
    nodes = {decision.replica: decision.to_node} if decision.to_node else {}
    expected = SubjectState(replicas=replicas, ready=replicas, nodes=nodes)
    if dry_run:
        drained = f"{decision.from_node} drained, " if decision.from_device else ""
        answer = f"would be: {drained}{job.label} requeued without {decision.from_node}"
        return Handle(operation="", expected=expected, answer=answer)
    rejected = set_mark(commands, job, Mark(decision.id, "move", job.restarts, 1))
    if rejected is not None:
        return rejected
    operation = move_of(decision, job.key, now_ns)
    begun = poll_move(commands, operation, now_ns)
    return Handle(operation=operation.encode(), expected=expected, answer=begun.answer)


def move_of(decision: Migrate, job: str, now_ns: int) -> Operation:
    """The operation of a decision."""
    return Operation(
        verb="migrate",
        decision=decision.id,
        workload=decision.workload,
        jobs=job,
        checkpoint=True,
        replica=decision.replica,
        node=decision.from_node,
        drain=bool(decision.from_device),
        until_ns=now_ns + round(GIVE_UP_S * _NS),
    )


def poll_move(commands: Commands, operation: Operation, now_ns: int) -> Progress:
    """Do the next step; done once the job runs without the node."""
    job = queue(commands).get(operation.keys[0])
    if job is None or job.ended:
        return Superseded(f"{operation.replica} has ended by itself")
    places = nodes_of(commands, job.nodes) if job.ready else []
    state = SubjectState(nodes={operation.replica: places[0] if places else ""})
    mark = job.mark
    if mark is None or mark.decision != operation.decision:
        return Superseded(f"{job.label} was commanded by another user since: {job.comment!r}", state)
    if job.ready and operation.node not in places:
        drained = f"; {operation.node} stays drained until a person has checked it" if operation.drain else ""
        return Done(state, now_ns, f"{job.label} has left {operation.node} and runs on {job.nodes}{drained}")
    if job.ready and job.restarts > mark.restarts:
        return Failed(f"{job.label} was started on {operation.node} again before it was excluded; decide again", state)
    if job.held and mark.verb == "moved":
        return Superseded(f"{job.label} was held by another user", state)
    status = _next_step(commands, operation, job, mark, now_ns)
    if isinstance(status, Rejected):
        return Running(status.detail) if status.code == "conflict" else Failed(status.detail, state)
    if now_ns >= operation.until_ns:
        return Failed(f"after {GIVE_UP_S:.0f} s: {status.message}", state)
    return Running(status.message)


def _possible(commands: Commands, job: Job, decision: Migrate) -> Rejected | None:
    if not (job.requeue and job.batch):
        return Rejected(
            "unsupported",
            f"{job.label} cannot be requeued: moving would end it for good; submit it with sbatch --requeue",
        )
    if decision.from_node in nodes_of(commands, job.required):
        return Rejected(
            "unsupported",
            f"{job.label} was submitted for {decision.from_node} alone; submit it without --nodelist",
        )
    return None


def _next_step(commands: Commands, operation: Operation, job: Job, mark: Mark, now_ns: int) -> StepStatus | Rejected:
    if job.ready:
        problem = _drain(commands, operation) if operation.drain else None
        return problem or stop(commands, job, mark, now_ns, checkpoint=operation.checkpoint)
    if job.completing:
        return StepStatus(f"{job.label} is leaving {job.nodes}")
    if not job.pending:
        return StepStatus(f"{job.label} is {job.state}")
    if mark.verb == "moved":
        return StepStatus(f"{job.label} waits for room without {operation.node}")
    excluded = ",".join(dict.fromkeys([*nodes_of(commands, job.excluded), operation.node]))
    rejected = release(commands, job, mark._replace(verb="moved"), now_ns, f"ExcNodeList={excluded}")
    return rejected or StepStatus(f"{job.label} is released without {operation.node}")


def _drain(commands: Commands, operation: Operation) -> Rejected | None:
    """Drain the node; if it is drained or down already, it keeps its reason."""
    found = _STATE.search(commands.query("scontrol", "-o", "show", "node", operation.node))
    if found is not None and ("DRAIN" in found[1] or "DOWN" in found[1]):
        return None
    reason = f"Reason=flyball {operation.decision}"
    return commands.apply("scontrol", "update", f"NodeName={operation.node}", "State=DRAIN", reason)
