"""Incidents as text for a terminal."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from rich.markup import escape
from rich.table import Table

from flyball_contracts.records import Evidence, Incident, NodeCondition, Silence

_COLOURS = {"critical": "red", "warning": "yellow", "info": "dim"}


def tabulated(found: Iterable[Incident]) -> Table:
    """One line for each."""
    table = Table("id", "severity", "state", "since", "GPUs", "what", box=None, header_style="bold", pad_edge=False)
    for one in found:
        table.add_row(
            one.id[:12], f"[{_COLOURS[one.severity]}]{one.severity}[/]", escape(state(one)), moment(one.onset_ns),
            str(one.gpus_affected or ""), escape(one.summary),
        )  # fmt: skip
    return table


def described(one: Incident) -> Iterator[str]:
    """All known facts of one incident, line by line."""
    yield f"{one.id}  {one.severity}, {state(one)}"
    yield one.summary
    yield f"cause      {one.cause} ({one.strength})" + (f", on {one.model}" if one.model else "")
    yield f"from       {moment(one.onset_ns)}, last seen {moment(one.seen_ns)}"
    for name, values in (("nodes", one.nodes), ("GPUs", one.devices), ("workloads", one.workloads)):
        if values:
            yield f"{name:<10} {', '.join(values)}"
    if one.peers:
        yield f"{'peers':<10} {', '.join(one.peers)}"
    for action in one.actions:
        detail = f" ({action.detail})" if action.detail else ""
        yield (
            f"action     {moment(action.time_ns)} {action.type} {action.workload}: {action.status}{detail}; "
            f"flyball explain {action.decision[:12]}"
        )
    yield f"evidence   {one.symptom_count} symptoms, the cause first"
    for symptom in one.symptoms:
        where = symptom.device or symptom.node if not symptom.gang else symptom.workload
        times = f" x{symptom.count}" if symptom.count > 1 else ""
        numbers = "; ".join(map(_number, symptom.evidence))
        yield f"  {moment(symptom.since_ns)} {symptom.strength:<6} {symptom.detector}{times} on {where}" + (
            f": {symptom.text or numbers}" if symptom.text or numbers else ""
        )


def of_silences(found: Iterable[Silence], now_ns: int) -> Table:
    """Current and future silences."""
    table = Table(
        "name", "cell", "what", "from", "until", "by", "reason", box=None, header_style="bold", pad_edge=False
    )
    for one in sorted(found, key=lambda s: (s.starts_ns, s.cell, s.name)):
        if one.ends_ns > now_ns:
            what = ", ".join(
                f"{key}={value}" for key in ("incident", "cause", "node", "device", "workload")
                if (value := getattr(one, key)) != "*"
            )  # fmt: skip
            table.add_row(
                *map(escape, (one.name, one.cell, what)), moment(one.starts_ns), moment(one.ends_ns),
                escape(one.by), escape(one.reason),
            )  # fmt: skip
    return table


def of_nodes(found: Iterable[NodeCondition]) -> Table:
    """Nodes and why they are cordoned; ``GPUs`` are those of all replicas that leave or restart with it."""
    columns = ("cell", "node", "condition", "since", "GPUs", "why", "waits for")
    table = Table(*columns, box=None, header_style="bold", pad_edge=False)
    for one in sorted(found, key=lambda n: (n.condition == "back", n.cell, n.since_ns, n.node)):
        table.add_row(
            escape(one.cell), escape(one.node), one.condition, moment(one.since_ns), str(one.gpus_moved or ""),
            escape(one.reason), escape(one.held),
        )  # fmt: skip
    return table


def state(one: Incident) -> str:
    """Its status, acknowledgement, and label."""
    words: list[str] = [one.status if not one.merged_into else f"part of {one.merged_into[:12]}"]
    if one.silence:
        words.append(f"silenced by {one.silence}")
    if one.acknowledged_by:
        words.append(f"taken by {one.acknowledged_by}")
    if one.label is not None:
        words.append("true" if one.label else "false alarm")
    return ", ".join(words)


def moment(time_ns: int) -> str:
    """A time in UTC."""
    return f"{datetime.fromtimestamp(time_ns / 1e9, UTC):%Y-%m-%d %H:%M:%S}"


def _number(item: Evidence) -> str:
    expected = "" if item.expected is None else f" (expected {item.expected:.4g})"
    return f"{item.name} {item.value:.4g}{expected}"
