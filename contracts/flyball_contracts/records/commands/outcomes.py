"""Outcomes of decisions."""

from typing import Literal

from flyball_contracts.records.base import Part, Record, TimeNs
from flyball_contracts.records.commands.decisions import DecisionType
from flyball_contracts.records.commands.kinds.base import Effect, Urgency
from flyball_contracts.records.commands.states import SubjectState

OutcomeStatus = Literal["accepted", "running", "done", "failed", "refused", "superseded", "planned"]
FINAL: frozenset[OutcomeStatus] = frozenset({"done", "failed", "refused", "superseded", "planned"})
RefusalCode = Literal[
    "", "mode_off", "kill_switch", "expired", "not_yet_valid", "unknown_target", "not_allowed", "protected", "window",
    "rate", "blast_radius", "limit", "quota", "tenant_mixed", "approval", "duplicate", "stale", "invalid",
    "no_platform", "unsupported", "conflict", "platform",
]  # fmt: skip
Mode = Literal["off", "dry_run", "live"]
UNKNOWN = "unknown outcome"
"""Beginning of the detail of a failed decision whose effect is not known."""


class Counted(Part, frozen=True, kw_only=True):
    """Amounts that the guard's limits count for a decision, for all actuators of a group.

    ``taken`` are the replicas that it removes, ``usd_per_hour`` is its expected addition to the cost, and
    ``decided_ns`` the time of the decision.
    """

    urgency: Urgency
    taken: int
    decided_ns: TimeNs
    usd_per_hour: float = 0.0


class Outcome(Record, frozen=True, kw_only=True):
    """One step in the life of a decision.

    A decision that is carried out is ``accepted``, then ``running``, then ``done``, ``failed`` or ``superseded``;
    ``done`` means that the platform shows the effect. In dry run the final status is ``planned``: the decision was
    checked against the real state, and nothing was changed. ``code`` says why it was refused, and ``detail`` names the
    rule and the remedy; ``duplicate`` is in old recordings only. ``allowed`` is how many replicas might have been taken
    from the subject where a limit on replicas refused more. ``unsuitable_nodes`` are nodes on which the platform says
    that the work may not run, so that another is chosen. ``actuator`` is the process that reports, ``operation`` the
    platform's name of the operation, ``counted`` the amounts that the limits count, and ``answer`` the platform's
    response. ``before`` is the state that was acted on, ``expected`` the state that the decision should lead to,
    ``observed`` the state that the platform shows, and ``effect`` the change, to be compared with the decision's own
    ``expected``. ``effect_after_s`` is the time from the decision until the platform showed the effect. ``audit``
    anchors the actuator's audit trail: ``TRAIL/LINE/CHECKSUM`` of the line with the final outcome.
    """

    id: str
    decision: str
    type: DecisionType
    target: str
    cell: str
    workload: str
    time_ns: TimeNs
    status: OutcomeStatus
    mode: Mode
    driver: str
    actuator: str = ""
    code: RefusalCode = ""
    detail: str = ""
    allowed: int | None = None
    answer: str = ""
    operation: str = ""
    counted: Counted | None = None
    before: SubjectState | None = None
    expected: SubjectState | None = None
    observed: SubjectState | None = None
    effect: Effect | None = None
    effect_after_s: float | None = None
    unsuitable_nodes: tuple[str, ...] = ()
    audit: str = ""

    @property
    def final(self) -> bool:
        """Whether this is the final outcome of the decision."""
        return self.status in FINAL

    @property
    def unknown(self) -> bool:
        """Whether the decision was submitted, or may have been, and its effect is not known."""
        return self.status == "failed" and self.detail.startswith(UNKNOWN)
