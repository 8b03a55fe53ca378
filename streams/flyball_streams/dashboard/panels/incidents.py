"""Incidents, the most severe first.

Or the anomalies and warnings of one subject, the most severe current ones first.
"""

from collections.abc import Callable
from typing import NamedTuple

from nicegui.element import Element
from nicegui.elements.mixins.text_element import TextElement

from flyball_contracts.records import Incident
from flyball_contracts.records.events import Severity
from flyball_streams.dashboard.links import incident_link, report_link
from flyball_streams.dashboard.panels.elements import anchor, box, head, panel, readdress, restyle, show, text
from flyball_streams.dashboard.preferences import Preferences
from flyball_streams.dashboard.state.fleet import FleetView
from flyball_streams.dashboard.state.nodes import Health
from flyball_streams.dashboard.state.reports import Report
from flyball_streams.dashboard.text import count, shown_evidence

SHOWN = 10
HEALTH: dict[Severity, Health] = {"critical": "failing", "warning": "straggling", "info": "anomalous"}
"""Colour class of each severity, shared with health states of the same level."""


class _Row(NamedTuple):
    line: Element
    tag: TextElement
    who: TextElement
    by: TextElement
    fill: Element
    score: TextElement
    why: TextElement
    when: TextElement


class IncidentPanel:
    """A fixed number of rows whose texts change; ``wanted`` limits them to one subject.

    A ``correlated`` panel shows open incidents as soon as workers have published any.
    """

    def __init__(
        self,
        prefs: Preferences,
        title: str = "Incidents",
        wanted: Callable[[Report], bool] = lambda _: True,
        nothing: str = "No anomaly on flyball.insights.v1 and no warning on flyball.events.v1 so far",
        *,
        correlated: bool = False,
    ) -> None:
        self._prefs = prefs
        self._wanted = wanted
        self._correlated = correlated
        with panel("odd", title):
            with head(title):
                self._sub = text(classes="sub")
            self._empty = text(nothing, "empty")
            with box("rows"):
                self._rows = [_row() for _ in range(SHOWN)]

    def update(self, view: FleetView, now: dict[str, int]) -> None:
        """Patch the rows."""
        if self._correlated and len(view.incidents):
            lines = [_of_incident(incident, view) for incident in view.open_incidents()]
            most = f"{SHOWN} of {count(len(lines))}, the worst first"
        else:
            lines = [_of_report(i, view) for i in view.ordered(filter(self._wanted, view.reports.values()), now)]
            most = f"{SHOWN} of {count(len(lines))}, the worst of now first"
        show(self._empty, not lines)
        if self._correlated and len(view.incidents):
            self._empty.set_text("Nothing is wrong")
        self._sub.set_text(most if len(lines) > SHOWN else "")
        for row, line in zip(self._rows, lines[:SHOWN], strict=False):
            row.tag.set_text(line.tag)
            restyle(row.tag, "tag", line.health)
            readdress(row.who, line.who, line.link)
            row.by.set_text(line.by)
            row.fill.style(f"width: {100 * min(1.0, max(0.0, line.score)):.0f}%")
            restyle(row.fill, "fill", line.health)
            row.score.set_text(f"{line.score:.2f}")
            row.why.set_text(line.why)
            row.when.set_text(self._prefs.clock(line.time_ns))
        for i, row in enumerate(self._rows):
            show(row.line, i < len(lines))


class _Line(NamedTuple):
    """Content of a row."""

    tag: str
    health: Health
    who: str
    link: str
    by: str
    score: float
    why: str
    time_ns: int


def _of_incident(incident: Incident, view: FleetView) -> _Line:
    parts = [incident.summary.partition(": ")[2] or incident.summary]
    parts += [f"silenced by {incident.silence}"] * bool(incident.silence)
    parts += [f"taken by {incident.acknowledged_by}"] * bool(incident.acknowledged_by)
    return _Line(
        incident.severity, HEALTH[incident.severity], place_of(incident, view), incident_link(incident.id),
        incident.cause.replace("_", " "), incident.score, "; ".join(parts), incident.onset_ns,
    )  # fmt: skip


def place_of(incident: Incident, view: FleetView) -> str:
    """Display name of an incident's place."""
    if incident.level in ("gpu", "link"):
        return " and ".join(view.place(device) for device in (incident.device or incident.link).split("|"))
    if incident.domain:
        return f"{'leaf switch' if incident.level == 'leaf' else 'rack'} {incident.domain}"
    return incident.node or incident.workload or f"cell {incident.cell}"


def _of_report(report: Report, view: FleetView) -> _Line:
    times = f" \N{MULTIPLICATION SIGN}{count(report.count)}" if report.count > 1 else ""
    return _Line(
        report.health, report.health, view.place(report.subject), report_link(report.id),
        report.detector.replace("_", " ") + times, report.latest.score, why(report), report.time_ns,
    )  # fmt: skip


def why(incident: Report) -> str:
    """Evidence of an incident, in one line."""
    latest = incident.latest
    parts = [shown_evidence(item) for item in latest.evidence[:2]] or [latest.text or "no evidence given"]
    return "; ".join(parts) + (f" ({incident.workload})" if incident.workload else "")


def _row() -> _Row:
    line = box("row-odd")
    with line:
        tag = text(classes="tag")
        who = anchor("", "#", "who")
        by = text(classes="by")
        with box("score"):
            with box("bar"):
                fill = box("fill")
            score = text()
        reason = text(classes="why")
        when = text(classes="when")
    line.set_visibility(False)
    return _Row(line, tag, who, by, fill, score, reason, when)
