"""Scales workloads: releases held and resumes suspended jobs, requeues and holds running ones, or suspends them."""

from collections.abc import Iterable
from typing import NamedTuple

from flyball_actuators.platforms.base import Done, Failed, Handle, Progress, Rejected, Running, Superseded
from flyball_actuators.platforms.slurm.commands import Commands
from flyball_actuators.platforms.slurm.effects import StepStatus, set_mark, start, stop
from flyball_actuators.platforms.slurm.jobs import Job, Queue, queue
from flyball_actuators.platforms.slurm.marks import Mark, Verb
from flyball_actuators.platforms.slurm.operation import Operation
from flyball_actuators.platforms.slurm.pause import pausable
from flyball_actuators.platforms.slurm.targets import job_of_replica, jobs_of
from flyball_contracts.records import Preempt, Scale, SubjectState

GIVE_UP_S = 900.0
_NS = 1_000_000_000
_NONE: frozenset[str] = frozenset()


class Choice(NamedTuple):
    """The jobs to stop or to start."""

    verb: Verb
    jobs: tuple[Job, ...]


def choose(jobs: Iterable[Job], decision: Scale | Preempt, places: frozenset[str] = _NONE) -> Choice | Rejected:
    """The jobs that a decision stops or starts, or why it cannot be carried out.

    Jobs in partitions ``places`` are suspended.
    """
    known = list(jobs)
    requested = [job for job in known if job.requested]
    change = decision.replicas - len(requested)
    if isinstance(decision, Scale):
        return _start(known, change, decision) if change >= 0 else _stop(requested, -change, (), _NONE)
    if change > 0:
        return Rejected("conflict", f"only {len(requested)} jobs of {decision.workload!r} are not held; decide again")
    return _stop(requested, -change, decision.victims, places)


def count(
    commands: Commands, jobs: list[Job], decision: Scale | Preempt, now_ns: int, *, dry_run: bool
) -> Handle | Rejected:
    """Mark the jobs, then begin; after a crash the marks identify the decision."""
    places = pausable(commands, decision)
    choice = choose(jobs, decision, places)
    if isinstance(choice, Rejected):
        return choice
    replicas = decision.replicas
    victims = decision.victims if isinstance(decision, Preempt) else ()
    expected = SubjectState(replicas=replicas, ready=replicas, nodes=dict.fromkeys(victims, ""))
    if dry_run:
        names = ", ".join(job.label for job in choice.jobs) or "nothing"
        stopped = "suspended, or requeued and held" if places else "requeued and held"
        does = "released" if choice.verb == "start" else stopped
        return Handle(operation="", expected=expected, answer=f"would be {does}: {names}")
    for job in choice.jobs:
        rejected = set_mark(commands, job, Mark(decision.id, choice.verb, job.restarts, len(choice.jobs)))
        if rejected is not None:
            return rejected
    operation = operation_of(decision, choice.verb, (job.key for job in choice.jobs), now_ns, places)
    begun = poll_count(commands, operation, (), now_ns)
    return Handle(operation=operation.encode(), expected=expected, answer=begun.answer)


def operation_of(
    decision: Scale | Preempt, verb: Verb, keys: Iterable[str], now_ns: int, places: frozenset[str]
) -> Operation:
    """The operation of a decision."""
    return Operation(
        verb="count",
        decision=decision.id,
        workload=decision.workload,
        jobs=",".join(keys),
        replicas=decision.replicas,
        serve=isinstance(decision, Scale) and verb != "stop",
        checkpoint=not isinstance(decision, Preempt) or decision.checkpoint,
        pause=",".join(sorted(places)),
        until_ns=now_ns + round(GIVE_UP_S * _NS),
    )


def poll_count(commands: Commands, operation: Operation, partitions: tuple[str, ...], now_ns: int) -> Progress:
    """Do the next step of each job; done once all have left their nodes, or run."""
    known = queue(commands)
    statuses: list[StepStatus] = []
    refused: list[str] = []
    for key in operation.keys:
        job = known.get(key)
        mark = job.mark if job is not None else None
        if job is None or mark is None or mark.decision != operation.decision:
            statuses.append(_unmarked(key, job, mark))
            continue
        status = (
            stop(
                commands,
                job,
                mark,
                now_ns,
                checkpoint=operation.checkpoint,
                pause=job.partition in operation.pause.split(","),
            )
            if mark.verb == "stop"
            else start(commands, job, mark, now_ns)
        )
        if isinstance(status, StepStatus):
            statuses.append(status)
        elif status.code == "conflict":
            statuses.append(StepStatus(status.detail))  # it has changed by itself; the next poll shows its new state
        else:
            refused.append(status.detail)
    state = _state(known, operation.workload, partitions)
    answer = "; ".join([*refused, *dict.fromkeys(status.message for status in statuses)]) or "no job has to change"
    if refused:
        return Failed(answer, state)
    if any(status.lost for status in statuses):
        return Superseded(answer, state)
    if not all(status.settled for status in statuses):
        late = not operation.serve and now_ns >= operation.until_ns  # a start may wait for room without limit
        return Failed(f"after {GIVE_UP_S:.0f} s: {answer}", state) if late else Running(answer)
    if operation.serve and (state.ready or 0) < min(operation.replicas, state.replicas or 0):
        return Running(f"{state.ready} of {operation.replicas} replicas run")
    return Done(state, now_ns, answer)


def _unmarked(key: str, job: Job | None, mark: Mark | None) -> StepStatus:
    """Status of a job that does not have this decision's mark."""
    if job is None or job.ended:
        return StepStatus(f"job {key} has ended", settled=True)
    whose = f"decision {mark.decision}" if mark is not None else "another user, who removed the mark"
    return StepStatus(f"{job.label} was commanded by {whose} since", lost=True)


def _state(known: Queue, workload: str, partitions: tuple[str, ...]) -> SubjectState:
    jobs = jobs_of(known, workload, partitions)
    if not isinstance(jobs, Rejected):
        return shown(jobs)
    return shown(()) if jobs.code == "unknown_target" else SubjectState()


def shown(jobs: Iterable[Job]) -> SubjectState:
    """Jobs as replicas."""
    known = list(jobs)
    requested = sum(job.requested for job in known)
    return SubjectState(
        replicas=requested, ready=sum(job.ready for job in known), suspended=bool(known) and not requested
    )


def _start(jobs: list[Job], more: int, decision: Scale) -> Choice | Rejected:
    held = sorted((job for job in jobs if job.held or job.suspended), key=lambda job: (job.mark is None, *job.order))
    if more > len(held):
        most = decision.replicas - more + len(held)
        return Rejected(
            "unsupported",
            f"{decision.replicas} replicas of {decision.workload!r} are {more - len(held)} more than there are jobs, "
            f"and only users submit jobs; request {most} at most, or submit more (sbatch --hold)",
        )
    return Choice("start", tuple(held[:more]))


def _stop(requested: list[Job], fewer: int, victims: tuple[str, ...], places: frozenset[str]) -> Choice | Rejected:
    def stops(job: Job) -> bool:
        return job.pending or (job.requeue and job.batch) or job.partition in places

    first = list(dict.fromkeys(job for victim in victims if (job := job_of_replica(requested, victim)) is not None))
    latest = sorted(requested, key=lambda job: (job.pending, job.start_s, *job.order), reverse=True)
    rest = [job for job in latest if job not in first and stops(job)]
    fixed = [job for job in first[:fewer] if not stops(job)]
    chosen = [*first, *rest][:fewer]
    if fixed or len(chosen) < fewer:
        which = ", ".join(job.label for job in fixed or requested if not (job.requeue and job.batch))
        return Rejected(
            "unsupported",
            f"{which} cannot be requeued: stopping would end it for good; submit it with sbatch --requeue, or name "
            "other victims",
        )
    return Choice("stop", tuple(chosen))
