"""A decision under way, and what is said of it."""

from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from flyball_actuators.execution.effect import difference
from flyball_actuators.guard import Grant
from flyball_actuators.platforms import Done, Failed, Handle, Progress, Rejected, Running, Served
from flyball_contracts.config import ActuatorConfig
from flyball_contracts.ids import record_id
from flyball_contracts.records import AnyDecision, Counted, Effect, Outcome, SubjectState
from flyball_contracts.records.commands.outcomes import FINAL, Mode, OutcomeStatus, RefusalCode

UNKNOWN = "unknown outcome"
Step = Literal[
    "waiting", "looking", "observing", "planning", "claiming", "claimed", "submitting", "running", "polling", "ending"
]
_SUBMITTED: frozenset[Step] = frozenset({"running", "polling"})


class Asked(NamedTuple):
    """A decision was read at ``offset``, and sent at ``at_ms``."""

    offset: int
    at_ms: int


@dataclass(eq=False)
class Task:
    """One decision from its arrival to its last word; ``asked`` are its offsets, all in one partition.

    ``look`` means that somebody may have submitted it already: the platform is observed before anything is done.
    ``assumed`` are the replicas from which those started that it overtook before they were submitted, and
    ``grant`` is what the limits count of it. The first ``skip`` claims of the log are of actuators that are gone;
    ``claim`` is the offset of our own. ``polled_s`` is when the platform was first seen to be still at it. One that is
    ``dropped`` is another actuator's now, and of one that ``moved`` the cell may be.
    """

    decision: AnyDecision
    partition: int
    asked: list[Asked]
    served: Served | Rejected
    subject: str
    look: bool = False
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
    assumed: tuple[int, ...] = ()
    grant: Grant | None = None
    last: Outcome | None = None
    dropped: bool = False
    moved: bool = False

    @property
    def submitted(self) -> bool:
        """Whether the platform has taken it on, and is still at it."""
        return self.step in _SUBMITTED


def counted(grant: Grant) -> Counted:
    """What an outcome says of a grant."""
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
        """One outcome; a last word has one id, whoever says it."""
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
        """The last outcome of what was submitted; one that is still running was overtaken."""
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
            detail=progress.answer if failed else "the platform was told something newer about the same subject",
            answer=progress.answer,
            observed=progress.observed,
            effect=effect,
        )
