"""One Slurm cluster as a platform; see :class:`SlurmPlatform`."""

import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from flyball_actuators.platforms.base import Capabilities, Done, Failed, Handle, Progress, Promises, Rejected
from flyball_actuators.platforms.slurm.check import Checks
from flyball_actuators.platforms.slurm.commands import Commands
from flyball_actuators.platforms.slurm.count import count, operation_of, poll_count, shown
from flyball_actuators.platforms.slurm.jobs import Job, Queue, nodes_of, queue
from flyball_actuators.platforms.slurm.marks import Verb
from flyball_actuators.platforms.slurm.migrate import migrate, move_of, poll_move
from flyball_actuators.platforms.slurm.operation import decode
from flyball_actuators.platforms.slurm.pause import pausable
from flyball_actuators.platforms.slurm.take_back import take_back
from flyball_actuators.platforms.slurm.targets import job_of_replica, jobs_of, key_of, runs, version_of
from flyball_contracts.config import PlatformConfig
from flyball_contracts.errors import ConfigError
from flyball_contracts.records import AnyDecision, Check, Migrate, Preempt, Scale, SubjectState

_OVERWRITTEN = "overwritten"


class SlurmPlatform:
    """Carries out decisions on the jobs of some partitions.

    A workload is the jobs whose comment contains ``flyball.dev/workload=NAME`` or, without that, whose name is NAME; a
    replica is a job or a task of a job array. Slurm has neither request tokens nor versions: each decision is first
    marked in the comments of its jobs, and its progress is read from the queue.
    """

    name = "slurm"
    capabilities = Capabilities(
        kinds=frozenset({"Scale", "Migrate", "Preempt", "Check"}),
        tracks=True,
        about=frozenset({"workload", "node"}),
        promises=Promises(victims=True, checkpoint="asked", gang=True),
    )

    def __init__(self, entry: PlatformConfig, where: str = "platform", clock: Callable[[], int] = time.time_ns) -> None:
        if not entry.partitions:
            raise ConfigError(f"{where}.partitions: none is named; list those whose jobs Flyball may command")
        if entry.conf and not Path(entry.conf).is_file():
            raise ConfigError(f"{where}.conf: {entry.conf} is no file; name the cluster's slurm.conf")
        self._commands = Commands(entry.conf, entry.timeout_s)
        self._partitions = entry.partitions
        self._checks = Checks(self._commands, entry.check, entry.partitions)
        self._clock = clock

    def observe(self, decision: AnyDecision) -> SubjectState | Rejected:
        """Jobs of the workload, and the nodes of the replicas that the decision names, which it must own."""
        if isinstance(decision, Check):
            return self._checks.observe(decision)
        known = queue(self._commands)
        jobs = jobs_of(known, decision.workload, self._partitions)
        if isinstance(jobs, Rejected):
            return jobs
        nodes: dict[str, str] = {}
        for replica in decision.named_replicas:
            job = _own(known, jobs, decision.workload, replica)
            if isinstance(job, Rejected):
                return job
            if job is not None:
                nodes[replica] = self._place(job, replica)
        state = shown(jobs)
        return SubjectState(
            replicas=state.replicas,
            ready=state.ready,
            nodes=nodes,
            suspended=state.suspended,
            version=version_of(jobs),
        )

    def submit(self, decision: AnyDecision, observed: SubjectState, *, dry_run: bool) -> Handle | Rejected:
        """Mark the jobs and begin, if they are unchanged since they were observed."""
        if isinstance(decision, Check):
            return self._checks.submit(decision, observed, self._clock(), dry_run=dry_run)
        jobs = jobs_of(queue(self._commands), decision.workload, self._partitions)
        if isinstance(jobs, Rejected):
            return jobs
        if version_of(jobs) != observed.version:
            return Rejected(
                "conflict", f"the jobs of {decision.workload!r} were changed since they were observed; decide again"
            )
        if isinstance(decision, Migrate):
            return migrate(self._commands, jobs, decision, self._clock(), dry_run=dry_run)
        if isinstance(decision, Scale) and decision.besides:
            cannot = f"platform slurm cannot give {decision.workload!r} {decision.besides[0]}"
            return Rejected("unsupported", f"{cannot}; decide on replicas alone")
        return count(self._commands, jobs, decision, self._clock(), dry_run=dry_run)

    def poll(self, handle: Handle) -> Progress:
        """Progress from the queue; does the steps that are left."""
        if handle.operation == _OVERWRITTEN:
            return Failed(f"unknown outcome: {handle.answer}")
        operation = decode(handle.operation)
        if operation.verb == "check":
            return self._checks.poll(operation, self._clock())
        if operation.verb == "migrate":
            return poll_move(self._commands, operation, self._clock())
        progress = poll_count(self._commands, operation, self._partitions, self._clock())
        if not isinstance(progress, Done) or not handle.expected.nodes:
            return progress
        jobs = [job for job in queue(self._commands).values() if runs(job, operation.workload)]
        found = {name: job_of_replica(jobs, name) for name in handle.expected.nodes}
        nodes = {name: self._place(job, name) if job is not None else "" for name, job in found.items()}
        return progress._replace(observed=msgspec.structs.replace(progress.observed, nodes=nodes))

    def take_back(self, handle: Handle) -> Progress | None:
        """Let jobs that were sent a checkpoint signal run on, if none of them has stopped."""
        if handle.operation == _OVERWRITTEN:
            return None
        operation = decode(handle.operation)
        return None if operation.verb == "check" else take_back(self._commands, operation)

    def find(self, decision: AnyDecision, observed: SubjectState | None) -> Handle | None:
        """Find the operation by the decision's marks.

        Nothing is done before all jobs are marked: if only some are marked, it was never started. If none is marked and
        the jobs differ from the observed ones, the marks may have been overwritten: the outcome is unknown.
        """
        if isinstance(decision, Check):
            return self._checks.find(decision, self._clock())
        known = queue(self._commands)
        ours = [
            job
            for job in sorted(known.values(), key=lambda job: job.order)
            if job.mark and job.mark.decision == decision.id and runs(job, decision.workload)
        ]
        if ours:
            return self._found(decision, ours)
        jobs = jobs_of(known, decision.workload, self._partitions)
        if not isinstance(jobs, Rejected) and observed is not None and version_of(jobs) == observed.version:
            return None
        answer = f"the jobs of {decision.workload!r} were changed since the decision was claimed; look at them"
        expected = decision.expected_state(observed or SubjectState())
        return Handle(operation=_OVERWRITTEN, expected=expected, answer=answer)

    def _found(self, decision: Scale | Migrate | Preempt, ours: list[Job]) -> Handle | None:
        expected = decision.expected_state(SubjectState())
        if isinstance(decision, Migrate):
            operation = move_of(decision, ours[0].key, self._clock())
            return Handle(operation=operation.encode(), expected=expected, answer="found on the job")
        marks = [mark for job in ours if (mark := job.mark) is not None]
        if len(ours) < marks[0].jobs and not any(map(_begun, ours)):
            return None
        verb: Verb = "stop" if marks[0].verb == "stop" else "start"
        pause = pausable(self._commands, decision)
        counted = operation_of(decision, verb, (job.key for job in ours), self._clock(), pause)
        return Handle(operation=counted.encode(), expected=expected, answer="found on the jobs")

    def _place(self, job: Job, replica: str) -> str:
        """Node of a replica; empty if its job does not run."""
        if not job.ready:
            return ""
        nodes = nodes_of(self._commands, job.nodes)
        called = replica.partition(".")[2]
        return next((node for node in nodes if f"{called}.".startswith(f"{node}.")), nodes[0])


def _own(known: Queue, jobs: list[Job], workload: str, replica: str) -> Job | Rejected | None:
    """Job of a replica; ``None`` if it has ended, ``Rejected`` if it belongs to another workload."""
    if key_of(replica) is None:
        return Rejected(
            "invalid", f"replica {replica!r} names no job; let agents call it by job and node: unset FLYBALL_REPLICA"
        )
    own, other = job_of_replica(jobs, replica), job_of_replica(known.values(), replica)
    if own is None and other is not None and not other.ended and not runs(other, workload):
        return Rejected(
            "invalid", f"{other.label} is not one of workload {workload!r}; name a replica of the workload itself"
        )
    return own


def _begun(job: Job) -> bool:
    """Whether a marked job was changed."""
    mark = job.mark
    if mark is None:
        return False
    if mark.verb == "stop":
        return job.restarts > mark.restarts or job.held or job.suspended or mark.due_s is not None
    return not job.held
