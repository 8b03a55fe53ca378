"""What became of a decision."""

from typing import Literal

from flyball_contracts.records.base import Record, TimeNs

OutcomeStatus = Literal["accepted", "refused", "done", "failed", "superseded"]
RefusalCode = Literal[
    "", "mode_off", "kill_switch", "expired", "not_yet_valid", "unknown_target", "not_allowed",
    "rate", "blast_radius", "duplicate", "stale", "invalid",
]  # fmt: skip
Mode = Literal["off", "dry_run", "live"]


class Outcome(Record, frozen=True, kw_only=True):
    """One step in the life of a decision; ``accepted`` is followed by one of the others.

    ``code`` says why it was refused, ``answer`` what the platform's API said, and ``effect_after_s`` how long
    it took from the decision until the platform reported the effect.
    """

    id: str
    decision: str
    type: Literal["Scale", "Migrate", "Preempt"]
    target: str
    cell: str
    workload: str
    time_ns: TimeNs
    status: OutcomeStatus
    mode: Mode
    driver: str
    code: RefusalCode = ""
    detail: str = ""
    answer: str = ""
    effect_after_s: float | None = None
