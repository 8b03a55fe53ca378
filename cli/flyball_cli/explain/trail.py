"""The audit trail's entries about one decision, as a table."""

from collections.abc import Iterable, Mapping

from rich.markup import escape
from rich.table import Table

from flyball_actuators.audit import AnyEntry, Stage
from flyball_actuators.audit.entries import Called, Judged, Published, Received, Started, Submitting
from flyball_cli.explain.rows import fill
from flyball_contracts.ids import NS_PER_S

_WHEN: Mapping[Stage, str] = {
    "arrival": "when it arrived",
    "observed": "on what the platform showed",
    "claimed": "while it waited",
    "last": "right before the call",
}


def table(entries: Iterable[AnyEntry]) -> Table:
    """One row for each entry; times are seconds after the first."""
    made = Table("line", "after", "what", "which", "result", box=None, pad_edge=False)
    first_ns: int | None = None
    for entry in entries:
        first_ns = entry.at_ns if first_ns is None else first_ns
        what, which, result = _row(entry)
        after_s = (entry.at_ns - first_ns) / NS_PER_S
        made.add_row(str(entry.line), f"{after_s:.3f} s", what, escape(which), escape(result))
    return made


def calls(entries: Iterable[AnyEntry]) -> Table | None:
    """The calls alone, ``None`` if there are none."""
    called = [entry for entry in entries if isinstance(entry, Called)]
    rows = ((escape(one.verb), escape(one.object), escape(one.status), escape(one.request_id)) for one in called)
    return fill(Table("call", "object", "status", "request id", box=None, pad_edge=False), rows) if called else None


def looks(entries: Iterable[AnyEntry]) -> Table | None:
    """Verdicts of the guard, one for each check of the decision; ``None`` if there was none."""
    judged = [entry for entry in entries if isinstance(entry, Judged)]
    rows = ((_WHEN[one.stage], escape(_verdict_text(one))) for one in judged)
    return fill(Table("when", "result", box=None, pad_edge=False), rows) if judged else None


def _verdict_text(entry: Judged) -> str:
    if entry.objected:
        return f"{entry.policy or entry.objected} objects: {entry.detail}"
    return f"{len(entry.passed)} passed"


def _row(entry: AnyEntry) -> tuple[str, str, str]:
    if isinstance(entry, Received):
        signed = f", signed by {entry.key}" if entry.key else ""
        which = f"{type(entry.record).__name__} of {entry.record.target}"
        return "decision", which, f"partition {entry.partition}, offset {entry.offset}{signed}"
    if isinstance(entry, Judged):
        return "checks", entry.stage, _verdict_text(entry)
    if isinstance(entry, Submitting):
        return "submit", entry.driver, "a dry run" if entry.dry_run else ""
    if isinstance(entry, Called):
        request = f", request {entry.request_id}" if entry.request_id else ""
        return "call", f"{entry.verb} {entry.object}", f"{entry.status}{request}"
    if isinstance(entry, Published):
        outcome = entry.outcome
        text = "; ".join(filter(None, (outcome.code, outcome.detail or outcome.answer)))
        return "outcome", outcome.status, text
    if isinstance(entry, Started):
        return "start", entry.actuator, entry.mode
    return "dead letter", f"partition {entry.partition}, offset {entry.offset}", entry.error
