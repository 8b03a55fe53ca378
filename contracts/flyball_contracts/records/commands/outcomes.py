"""Outcomes of decisions."""

from collections.abc import Mapping
from typing import Literal

from flyball_contracts.records.base import Part, Record, TimeNs
from flyball_contracts.records.commands.decisions import Effect
from flyball_contracts.records.commands.portion import Portion
from flyball_contracts.records.commands.resources import Resources

OutcomeStatus = Literal["accepted", "running", "done", "failed", "refused", "superseded", "planned"]
FINAL: frozenset[OutcomeStatus] = frozenset({"done", "failed", "refused", "superseded", "planned"})
RefusalCode = Literal[
    "", "mode_off", "kill_switch", "expired", "not_yet_valid", "unknown_target", "not_allowed", "protected", "window",
    "rate", "blast_radius", "limit", "quota", "tenant_mixed", "approval", "duplicate", "stale", "invalid",
    "no_platform", "unsupported", "conflict", "platform",
]  # fmt: skip
DecisionType = Literal["Scale", "Migrate", "Preempt", "Check"]
Mode = Literal["off", "dry_run", "live"]
Urgency = Literal["rescue", "normal", "deferral"]
"""A ``rescue`` leaves a failing device, a ``deferral`` stops work until a better time, all else is ``normal``."""


class Counted(Part, frozen=True, kw_only=True):
    """Amounts that the guard's limits count for a decision, for all actuators of a group.

    ``taken`` are the replicas that it removes, ``usd_per_hour`` is its expected addition to the cost, and
    ``decided_ns`` the time of the decision.
    """

    urgency: Urgency
    taken: int
    decided_ns: TimeNs
    usd_per_hour: float = 0.0


class SubjectState(Part, frozen=True, kw_only=True):
    """State of a decision's subject as the platform shows it, or should; ``None``: unknown, or not concerned.

    ``replicas`` are requested and ``ready`` of them serve. ``nodes`` are the nodes of the replicas that the decision
    names, by replica; a replica that is stopped has an empty node. ``version`` is the platform's own version of it.
    Of a pool, replicas are machines, and ``cost_usd_per_hour`` is what all pools of its cell cost together. Of a node,
    replicas are those that run on it, and it is ``suspended`` while it takes no work.
    """

    replicas: int | None = None
    ready: int | None = None
    nodes: Mapping[str, str] = {}
    power_limit_w: float | None = None
    resources: Resources | None = None
    mix: tuple[Portion, ...] = ()
    suspended: bool | None = None
    version: str = ""
    cost_usd_per_hour: float | None = None


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
