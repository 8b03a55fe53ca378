"""A decision in progress, and the outcomes that report it."""

from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from flyball_actuators.execution.effect import difference
from flyball_actuators.guard import Grant, Signature, Verdict
from flyball_actuators.platforms import Done, Failed, Handle, Progress, Rejected, Running, Served
from flyball_contracts.config import ActuatorConfig
from flyball_contracts.ids import record_id
from flyball_contracts.records import AnyDecision, Counted, Effect, Outcome, SubjectState
from flyball_contracts.records.commands.outcomes import FINAL, Mode, OutcomeStatus, RefusalCode

Step = Literal[
    "waiting", "finding", "observing", "planning", "claiming", "claimed", "submitting", "running", "polling", "ending"
]
_SUBMITTED: frozenset[Step] = frozenset({"running", "polling"})


class Delivery(NamedTuple):
    """A decision was read at ``offset``; it was sent at ``at_ms``."""

    offset: int
    at_ms: int


@dataclass(eq=False)
class Task:
    """One decision from its arrival to its final outcome; ``deliveries`` are its messages, all in one partition.

    ``maybe_submitted``: an earlier process may have submitted it, so the platform is queried before anything is done.
    ``assumed`` are the numbers of replicas that superseded, never submitted decisions on the subject started from;
    ``grant`` is what the limits count. The first ``skip`` claims in the log are by actuators that are gone; ``claim``
    is the offset of our own. ``polled_s`` is when the operation was first seen still in progress. ``dropped``: another
    actuator now owns the decision. ``overtaken`` is the newer decision on the subject that the platform has accepted;
    ``abandoned``: it was overtaken when it was last polled. ``moved``: its cell has another partition now.
    ``signature`` is that of its first delivery. ``aside`` is set while it waits because a newer decision on the subject
    may replace it, until that is accepted or refused. ``objection`` is the guard's reason why the operation is being
    taken back; ``gone``: it was too late to take it back.
    """

    decision: AnyDecision
    partition: int
    deliveries: list[Delivery]
    served: Served | Rejected
    subject: str
    maybe_submitted: bool = False
    step: Step = "waiting"
    observed: SubjectState | None = None
    handle: Handle | None = None
    call: Future[Any] | None = None
    skip: int = 0
    claim: int | None = None
    due_s: float = 0.0
    polled_s: float | None = None
    failing_s: float | None = None
    problem: str = ""
    conflicts: int = 0
    overtaken: str = ""
    abandoned: bool = False
    assumed: tuple[int, ...] = ()
    grant: Grant | None = None
    last: Outcome | None = None
    dropped: bool = False
    moved: bool = False
    signature: Signature | None = None
    aside: Verdict | None = None
    objection: Verdict | None = None
    gone: bool = False

    @property
    def submitted(self) -> bool:
        """Whether the platform has accepted it and the operation is still in progress."""
        return self.step in _SUBMITTED


def counted(grant: Grant) -> Counted:
    """A grant as outcomes record it."""
    return Counted(
        urgency=grant.urgency,
        taken=grant.taken,
        decided_ns=grant.decided_ns,
        usd_per_hour=grant.usd_per_hour,
    )


class OutcomeFactory:
    """Makes the outcomes of one actuator."""

    def __init__(self, config: ActuatorConfig, instance: str) -> None:
        self._mode: Mode = config.mode
        self._instance = instance

    def outcome(
        self,
        task: Task,
        status: OutcomeStatus,
        time_ns: int,
        *,
        code: RefusalCode = "",
        detail: str = "",
        answer: str = "",
        expected: SubjectState | None = None,
        observed: SubjectState | None = None,
        effect: Effect | None = None,
        effect_after_s: float | None = None,
    ) -> Outcome:
        """Make an outcome; a final outcome has the same id whichever actuator publishes it."""
        decision, handle, served = task.decision, task.handle, task.served
        who = () if status in FINAL else (self._instance,)
        return Outcome(
            id=record_id("Outcome", decision.id, status, code, *who),
            decision=decision.id,
            type=type(decision).__name__,  # type: ignore[arg-type]
            target=decision.target,
            cell=decision.cell,
            workload=decision.workload,
            time_ns=time_ns,
            status=status,
            mode=self._mode,
            driver="" if isinstance(served, Rejected) else served.platform.name,
            actuator=self._instance,
            code=code,
            detail=detail,
            answer=answer,
            operation=handle.operation if handle else "",
            counted=None if task.grant is None or status not in ("accepted", "running") else counted(task.grant),
            before=task.observed,
            expected=handle.expected if handle else expected,
            observed=observed,
            effect=effect,
            effect_after_s=effect_after_s,
        )

    def last(self, task: Task, progress: Progress, now_ns: int, effect: Effect | None) -> Outcome:
        """The final outcome of a submitted decision; a decision that still runs was superseded."""
        if isinstance(progress, Running):
            detail = f"decision {task.overtaken} about the same subject is newer, and the platform has taken it on"
            return self.outcome(task, "superseded", now_ns, code="stale", detail=detail, answer=progress.answer)
        if isinstance(progress, Done):
            return self.outcome(
                task,
                "done",
                max(now_ns, progress.at_ns),
                detail=difference(task.handle.expected if task.handle else None, progress.observed),
                answer=progress.answer,
                observed=progress.observed,
                effect=effect,
                effect_after_s=max(0, progress.at_ns - task.decision.time_ns) / 1e9,
            )
        failed = isinstance(progress, Failed)
        return self.outcome(
            task,
            "failed" if failed else "superseded",
            now_ns,
            code="" if failed else "stale",
            detail=progress.answer if failed else "the platform got a newer change to the same subject",
            answer=progress.answer,
            observed=progress.observed,
            effect=effect,
        )
