"""One decision on one screen: reason, expected change, actions, and observed effect."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from flyball_actuators.audit import AnyEntry
from flyball_cli.explain.records import DecisionRecords
from flyball_cli.explain.rows import fill
from flyball_cli.explain.trail import calls, looks
from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import AnyDecision, Evidence, Outcome, Record
from flyball_contracts.records.commands.kinds.base import utc
from flyball_streams.dashboard.sentences import effect_rows

STYLES = {"done": "green", "planned": "cyan", "failed": "red", "refused": "yellow", "superseded": "dim"}


def screen(found: DecisionRecords, trail: Sequence[AnyEntry] = ()) -> RenderableType:
    """The whole screen; ``trail`` are the decision's entries in an audit trail."""
    decision, last = found.decision, next((o for o in reversed(found.outcomes) if o.final), None)
    state = last.status if last else found.outcomes[-1].status if found.outcomes else "no outcome yet"
    title = Text.assemble(
        (f"{type(decision).__name__} ", "bold"), decision.target, "  ", (state, STYLES.get(state, ""))
    )
    parts: list[RenderableType] = [
        title,
        Text(f"{decision.change()}, decided {utc(decision.time_ns)} by {decision.policy}", "dim"),
        Text(f"id {decision.id}, confidence {decision.confidence:.0%}", "dim"),
        _part("why", Text(decision.reason)),
    ]
    if decision.evidence:
        parts.append(_part("evidence", _evidence(decision.evidence, found.records)))
    if found.outcomes:
        parts.append(_part("what was done", _timeline(decision, found.outcomes)))
    judged = looks(trail)
    if judged is not None:
        parts.append(_part("what the guard said", judged))
    submitted = calls(trail)
    if submitted is not None:
        parts.append(_part("what was sent to the platform", submitted))
    effects = effect_rows(decision.expected, last.effect if last else None)
    if effects:
        table = Table("", "expected", "observed", box=None, pad_edge=False)
        for row in effects:
            table.add_row(*row)
        parts.append(_part("effect", table))
    return Group(*parts)


def _part(title: str, body: RenderableType) -> RenderableType:
    return Group(Text(f"\n{title}", "bold"), Padding(body, (0, 0, 0, 2)))


def _evidence(evidence: tuple[Evidence, ...], records: dict[str, Record]) -> Table:
    rows = (
        (
            escape(one.name),
            escape(_number(one.value, one.unit)),
            "" if one.expected is None else escape(_number(one.expected, one.unit)),
            _source(one, records.get(one.record)),
        )
        for one in evidence
    )
    return fill(Table("number", "value", "expected", "read from", box=None, pad_edge=False), rows)


def _source(evidence: Evidence, record: Record | None) -> str:
    if not evidence.record:
        return ""
    if record is None:
        return escape(f"{evidence.name} {evidence.record[:8]}")
    subject, time_ns = getattr(record, "subject", ""), getattr(record, "time_ns", 0)
    return escape(f"{type(record).__name__} of {subject} at {utc(time_ns)}")


def _timeline(decision: AnyDecision, outcomes: list[Outcome]) -> Table:
    table = Table("after", "status", "by", "what", box=None, pad_edge=False)
    shown: set[tuple[str, str]] = set()
    for outcome in sorted(outcomes, key=lambda o: (o.final, o.time_ns)):
        if (outcome.status, outcome.actuator) in shown:
            continue
        shown.add((outcome.status, outcome.actuator))
        texts = [outcome.code, outcome.detail, outcome.answer if outcome.answer != outcome.detail else ""]
        after_s = (outcome.time_ns - decision.time_ns) / NS_PER_S
        who = f"{outcome.driver or 'guard'}, {outcome.mode.replace('_', ' ')}"
        style = STYLES.get(outcome.status, "")
        table.add_row(
            f"{after_s:.1f} s", Text(outcome.status, style), escape(who), escape("; ".join(filter(None, texts)))
        )
    return table


def _number(value: float, unit: str) -> str:
    return f"{value:.4g}" if unit == "1" else f"{value:.4g} {unit}"
