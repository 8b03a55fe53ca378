"""Checks a node by a batch job, and resumes the node if the job exits with status 0.

No job can run on a drained node. So a node that is open, or that Flyball drained, is reserved for the actuator's user
for as long as a check may take, and then resumed: only the job of the check can use it. If the check fails, the node is
drained again before the reservation is deleted. Reservation and job are named after the decision, so each step is safe
to repeat.
"""

import hashlib
import os
import pwd
import re
import shlex
from typing import NamedTuple

from flyball_actuators.platforms.base import Done, Failed, Handle, PlatformError, Progress, Rejected, Running
from flyball_actuators.platforms.slurm.commands import Commands
from flyball_actuators.platforms.slurm.jobs import Job, queue
from flyball_actuators.platforms.slurm.operation import Operation
from flyball_contracts.burn_in import GPUS
from flyball_contracts.config import CheckConfig
from flyball_contracts.nodes.slurm import OURS, node_of
from flyball_contracts.records import Check, SubjectState

PREFIX = "flyball-check-"
DEADLINE_S, SLACK_S = 1_800.0, 600.0
_OUTPUT = "/tmp"
_NS = 1_000_000_000
_CLOSED = SubjectState(suspended=True)
_GPUS = re.compile(r"\bgpu(?::[^:,(\s]+)?:(\d+)")


class _Node(NamedTuple):
    """State of a node in Slurm; ``held`` is the number of cores allocated to jobs."""

    state: str
    reason: str
    held: int
    gpus: int
    partitions: tuple[str, ...]

    @property
    def closed(self) -> bool:
        """Whether the node takes no new jobs."""
        return "DRAIN" in self.state or "DOWN" in self.state

    @property
    def shown(self) -> SubjectState:
        """The node as a subject state."""
        return SubjectState(suspended=self.closed, version=f"{self.closed}/{self.reason}")


class Checks:
    """The node checks of one cluster."""

    def __init__(self, commands: Commands, config: CheckConfig, partitions: tuple[str, ...]) -> None:
        self._commands, self._config, self._partitions = commands, config, partitions

    def observe(self, decision: Check) -> SubjectState | Rejected:
        """Whether the node takes jobs."""
        node = self._node(decision.node)
        return node if isinstance(node, Rejected) else node.shown

    def submit(self, decision: Check, observed: SubjectState, now_ns: int, *, dry_run: bool) -> Handle | Rejected:
        """Reserve the node, if it is empty and no other client drained it, and start the check."""
        node = self._node(decision.node)
        if isinstance(node, Rejected):
            return node
        problem = self._possible(decision, node, observed)
        if problem is not None:
            return problem
        expected, job = decision.expected_state(observed), name_of(decision.id)
        what = f"{shlex.join(self._config.command)} on {decision.node}, alone in reservation {job}"
        if dry_run:
            return Handle(operation="", expected=expected, answer=f"would run {what}")
        problem = self._reserve(decision.node, job)
        if problem is not None:
            return problem
        operation = self._operation(decision, now_ns)
        begun = self._begin(operation)
        if begun is not None:
            if node.closed:
                self._close(operation, "no check could be started")
            else:
                self._commands.apply("scontrol", "delete", f"ReservationName={job}")
            return begun
        return Handle(operation=operation.encode(), expected=expected, answer=f"runs {what}")

    def poll(self, operation: Operation, now_ns: int) -> Progress:
        """Progress of the job; in the end the node is open for all jobs, or drained."""
        name, node = name_of(operation.decision), operation.node
        job = self._job(name)
        if job is None:
            shown = self._node(node)
            if isinstance(shown, _Node) and not shown.closed and not self._is_reserved(name):  # it was opened before
                return Done(SubjectState(replicas=0, suspended=False), now_ns, f"{node} takes jobs again")
            return self._failed(operation, f"Slurm knows no job {name} any more")
        if job.state == "COMPLETED":
            problem = self._commands.apply("scontrol", "delete", f"ReservationName={name}")
            if problem is not None and problem.code != "unknown_target":
                return Running(problem.detail)
            done = f"job {job.key} ran {shlex.join(self._config.command)} on {node} and ended with status 0"
            return Done(SubjectState(replicas=0, suspended=False), now_ns, done)
        if job.ended:
            return self._failed(
                operation, f"job {job.key} on {node} ended as {job.state}; its output is in {_OUTPUT}/{name}.* there"
            )
        if now_ns >= operation.until_ns:
            self._commands.apply("scancel", job.key)
            return self._failed(operation, f"job {job.key} has not ended in time; it was {job.state}")
        return Running(f"job {job.key} checks {node}: {job.state}")

    def find(self, decision: Check, now_ns: int) -> Handle | None:
        """The operation of a decision whose reservation exists; its job is started if it is missing."""
        name = name_of(decision.id)
        if self._job(name) is None and not self._is_reserved(name):
            return None
        operation = self._operation(decision, now_ns)
        if self._job(name) is None:
            begun = self._begin(operation)
            if begun is not None:
                raise PlatformError(begun.detail)
        return Handle(operation=operation.encode(), expected=decision.expected_state(_CLOSED), answer="found as a job")

    def _possible(self, decision: Check, node: _Node, observed: SubjectState) -> Rejected | None:
        if node.shown.version != observed.version:
            return Rejected("conflict", f"node {decision.node} was changed since it was observed; decide again")
        if node.closed and not node.reason.startswith(OURS):
            return Rejected(
                "conflict",
                f"node {decision.node} was not drained by Flyball: {node.reason!r}; whoever drained it resumes it",
            )
        if "DOWN" in node.state:
            return Rejected("conflict", f"node {decision.node} is {node.state}: no job can run there; start its slurmd")
        if node.held:
            return Rejected("conflict", f"jobs hold {node.held} cores of node {decision.node}; it is not empty yet")
        if not set(node.partitions) & set(self._partitions):
            return Rejected(
                "unsupported",
                f"node {decision.node} is in partition {', '.join(node.partitions)} alone; name one of these in "
                "partitions of the cell's entry in actuator.platforms",
            )
        return None

    def _reserve(self, node: str, name: str) -> Rejected | None:
        minutes = max(1, round((DEADLINE_S + SLACK_S) / 60.0))
        made = self._commands.apply(
            "scontrol", "create", "reservation", f"ReservationName={name}", "StartTime=now", f"Duration={minutes}",
            f"Nodes={node}", f"Users={_user()}", "Flags=MAINT,IGNORE_JOBS",
        )  # fmt: skip
        return None if made is None or "Duplicate" in made.detail else made

    def _begin(self, operation: Operation) -> Rejected | None:
        """Resume the reserved node and submit the job."""
        node, name = operation.node, name_of(operation.decision)
        shown = self._node(node)
        if isinstance(shown, Rejected):
            return shown
        if shown.closed:
            problem = self._commands.apply("scontrol", "update", f"NodeName={node}", "State=RESUME")
            if problem is not None:
                return problem
        partition = next(one for one in self._partitions if one in shown.partitions)
        # Anyone who reads the decision knows the job's name, and could have put a link of that name into /tmp.
        output = f'exec >"$(mktemp {_OUTPUT}/{name}.XXXXXXXX)" 2>&1'
        gpus = max(shown.gpus, operation.gpus)  # if Slurm counts fewer GPUs, it hides some
        script = f"{output}; export {GPUS}={gpus}; exec {shlex.join(self._config.command)}"
        answer = self._commands.run(
            "sbatch", "--parsable", f"--job-name={name}", f"--reservation={name}", f"--nodelist={node}",
            f"--partition={partition}", "--exclusive", "--nodes=1", "--no-requeue", "--chdir=/tmp",
            f"--time={max(1, round(DEADLINE_S / 60.0))}", "--output=/dev/null",
            *((f"--gres=gpu:{shown.gpus}",) if shown.gpus else ()), f"--wrap={script}",
        )  # fmt: skip
        return answer if isinstance(answer, Rejected) else None

    def _failed(self, operation: Operation, why: str) -> Progress:
        problem = self._close(operation, why)
        if problem is not None:
            return Running(f"{why}; {problem.detail}")
        return Failed(f"{why}; it stays drained", _CLOSED)

    def _close(self, operation: Operation, why: str) -> Rejected | None:
        """Drain the node, and only then delete the reservation."""
        reason = f"Reason={OURS} {operation.decision}: {why}"
        problem = self._commands.apply("scontrol", "update", f"NodeName={operation.node}", "State=DRAIN", reason)
        if problem is not None:
            return problem
        name = name_of(operation.decision)
        if self._is_reserved(name):
            return self._commands.apply("scontrol", "delete", f"ReservationName={name}")
        return None

    def _job(self, name: str) -> Job | None:
        found = [job for job in queue(self._commands).values() if job.name == name]
        return max(found, key=lambda job: job.order, default=None)

    def _is_reserved(self, name: str) -> bool:
        return f"ReservationName={name} " in self._commands.query("scontrol", "-o", "show", "reservation")

    def _node(self, name: str) -> _Node | Rejected:
        output = self._commands.run("scontrol", "-o", "show", "node", name, changes=False)
        if isinstance(output, Rejected):
            return output
        shown, fields = node_of(output), dict(re.findall(r"\b(CPUAlloc|Gres|Partitions)=(\S+)", output))
        if shown is None:
            return Rejected("unknown_target", f"Slurm has no node {name!r}; agents must call it as Slurm does")
        return _Node(
            state=shown.state,
            reason=shown.reason,
            held=int(fields.get("CPUAlloc", "0")),
            gpus=sum(map(int, _GPUS.findall(fields.get("Gres", "")))),
            partitions=tuple(one for one in fields.get("Partitions", "").split(",") if one),
        )

    def _operation(self, decision: Check, now_ns: int) -> Operation:
        until_ns = now_ns + round((DEADLINE_S + SLACK_S / 2.0) * _NS)
        return Operation(
            verb="check", decision=decision.id, workload=decision.workload, node=decision.node, until_ns=until_ns,
            gpus=len(decision.devices),
        )  # fmt: skip


def name_of(decision: str) -> str:
    """Name of a decision's job and reservation."""
    return PREFIX + hashlib.sha256(decision.encode()).hexdigest()[:16]


def _user() -> str:
    return pwd.getpwuid(os.geteuid()).pw_name
