"""One decision on one screen: reason, expected change, actions, and observed effect."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

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
from flyball_contracts.records import AnyDecision, Check, Effect, Evidence, Migrate, Outcome, Record, Scale

STYLES = {"done": "green", "planned": "cyan", "failed": "red", "refused": "yellow", "superseded": "dim"}
_EFFECTS = (
    ("gpus", "GPUs", ""),
    ("cost_usd_per_hour", "cost", " USD/h"),
    ("carbon_g_per_hour", "carbon", " g/h"),
    ("power_w", "power", " W"),
    ("slo", "requests in time", ""),
)


def screen(found: DecisionRecords, trail: Sequence[AnyEntry] = ()) -> RenderableType:
    """The whole screen; ``trail`` are the decision's entries in an audit trail."""
    decision, last = found.decision, next((o for o in reversed(found.outcomes) if o.final), None)
    state = last.status if last else found.outcomes[-1].status if found.outcomes else "no outcome yet"
    title = Text.assemble(
        (f"{type(decision).__name__} ", "bold"), decision.target, "  ", (state, STYLES.get(state, ""))
    )
    parts: list[RenderableType] = [
        title,
        Text(f"{requested_change(decision)}, decided {_clock(decision.time_ns)} by {decision.policy}", "dim"),
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
    effects = list(_effects(decision.expected, last.effect if last else None))
    if effects:
        table = Table("", "expected", "observed", box=None, pad_edge=False)
        for row in effects:
            table.add_row(*row)
        parts.append(_part("effect", table))
    return Group(*parts)


def requested_change(decision: AnyDecision) -> str:
    """The change that a decision requests, as text."""
    if isinstance(decision, Migrate):
        device = f", device {decision.from_device}" if decision.from_device else ""
        where = decision.to_node or "a node of the scheduler's choice"
        return f"{decision.replica} from {decision.from_node}{device} to {where}"
    if isinstance(decision, Check):
        gpus = f", GPUs {', '.join(decision.devices)}" if decision.devices else ""
        return f"check {decision.attempt} of node {decision.node}{gpus}"
    text = f"{decision.replicas_before} to {decision.replicas} replicas"
    if isinstance(decision, Scale):
        allocation = ", ".join(f"{part.replicas} on {part.offer}" for part in decision.mix)
        return (
            text + (f": {allocation}" if allocation else "") + (" with other resources" if decision.resources else "")
        )
    victims = f" ({', '.join(decision.victims)})" if decision.victims else ""
    until = f" until {_clock(decision.until_ns)}" if decision.until_ns else ""
    return text + victims + until + (f" for {decision.beneficiary}" if decision.beneficiary else "")


def _part(title: str, body: RenderableType) -> RenderableType:
    return Group(Text(f"\n{title}", "bold"), Padding(body, (0, 0, 0, 2)))


def _evidence(evidence: tuple[Evidence, ...], records: dict[str, Record]) -> Table:
    rows = (
        (
            one.name,
            _number(one.value, one.unit),
            "" if one.expected is None else _number(one.expected, one.unit),
            _source(one, records.get(one.record)),
        )
        for one in evidence
    )
    return fill(Table("number", "value", "expected", "read from", box=None, pad_edge=False), rows)


def _source(evidence: Evidence, record: Record | None) -> str:
    if not evidence.record:
        return ""
    if record is None:
        return f"{evidence.name} {evidence.record[:8]}"
    subject, time_ns = getattr(record, "subject", ""), getattr(record, "time_ns", 0)
    return escape(f"{type(record).__name__} of {subject} at {_clock(time_ns)}")


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
        table.add_row(f"{after_s:.1f} s", Text(outcome.status, style), who, escape("; ".join(filter(None, texts))))
    return table


def _effects(expected: Effect, observed: Effect | None) -> Iterator[tuple[str, str, str]]:
    for name, title, unit in _EFFECTS:
        wanted = getattr(expected, name)
        seen = None if observed is None else getattr(observed, name)
        if wanted is not None or seen is not None:
            yield title, _change(wanted, unit), _change(seen, unit)


def _number(value: float, unit: str) -> str:
    return f"{value:.4g}" if unit == "1" else f"{value:.4g} {unit}"


def _clock(time_ns: int) -> str:
    return datetime.fromtimestamp(time_ns // NS_PER_S, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _change(value: float | None, unit: str) -> str:
    return "" if value is None else f"{value:+.3g}{unit}"
