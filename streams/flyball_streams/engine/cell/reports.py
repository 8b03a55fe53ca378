"""Reports of the actuator on decisions, kept until a tick applies them."""

from typing import Literal

import msgspec

from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import Outcome
from flyball_streams.engine.cell.backoff import UNANSWERED

KEPT_S = 3600.0
MAX_REPORTS = 1024
Status = Literal["", "accepted", "running", "done", "failed", "refused", "superseded", "planned"]
RANK = {"": 0, "accepted": 1, "running": 2, "failed": 3, "refused": 3, "superseded": 3, "planned": 3, "done": 4}
"""A report of higher rank replaces one of lower; of two final ones, the one with an effect counts."""


class Report(msgspec.Struct):
    """The newest report on a decision: its status, the reason, and the replicas that the platform shows.

    ``since_ns`` is the first tick at which no open order had this decision. ``partly`` means that not all replicas
    were to have new resources. ``unsuitable_nodes`` are nodes on which the platform does not let the work run, and
    ``allowed`` is how many replicas the limits that refused it would have let go.
    """

    status: Status
    code: str = ""
    replicas: int | None = None
    since_ns: int = -1
    partly: bool = False
    unsuitable_nodes: tuple[str, ...] = ()
    allowed: int | None = None

    @property
    def final(self) -> bool:
        """Whether no other report follows."""
        return RANK[self.status] > RANK["running"]

    @property
    def ending(self) -> str:
        """How a decision ended without effect."""
        if self.status == "refused":
            return f"refused by {self.code}" if self.code else "refused"
        return {
            "": UNANSWERED, "accepted": "accepted and not ended", "running": "started and not ended",
            "done": "reported as done but not seen", "planned": "planned in dry run",
        }.get(self.status, self.status)  # fmt: skip


def report_of(outcome: Outcome) -> Report | None:
    """The report in an outcome; ``None`` for a refused duplicate, which changes nothing."""
    if outcome.status == "refused" and outcome.code == "duplicate":
        return None
    status = outcome.status
    if status == "done" and outcome.mode != "live":
        status = "planned"  # old recordings have no status of their own for dry runs
    state = outcome.before if outcome.observed is None and status == "refused" else outcome.observed
    observed = None if state is None else state.replicas
    partly = outcome.expected is not None and outcome.expected.resources is None
    return Report(
        status,
        outcome.code,
        observed,
        partly=partly,
        allowed=outcome.allowed,
        unsuitable_nodes=outcome.unsuitable_nodes,
    )


def record(reports: dict[str, Report], decision: str, report: Report) -> None:
    """Keep the report on a decision if it is newer; of more than ``MAX_REPORTS``, the oldest are dropped."""
    before = reports.get(decision)
    if before is None or RANK[report.status] >= RANK[before.status]:
        reports[decision] = report
    while len(reports) > MAX_REPORTS:
        del reports[next(iter(reports))]


def expire(reports: dict[str, Report], now: int) -> None:
    """Drop reports that no open order has claimed for ``KEPT_S``."""
    for decision, report in list(reports.items()):
        if report.since_ns < 0 or report.since_ns > now:
            report.since_ns = now
        elif now - report.since_ns >= KEPT_S * NS_PER_S:
            del reports[decision]
