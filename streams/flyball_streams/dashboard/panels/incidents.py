"""Anomalies and warnings, gathered into incidents, the worst of now first."""

from collections.abc import Callable
from typing import NamedTuple

from nicegui.element import Element
from nicegui.elements.mixins.text_element import TextElement

from flyball_streams.dashboard.links import incident_link
from flyball_streams.dashboard.look import Look
from flyball_streams.dashboard.panels.elements import anchor, box, head, panel, readdress, restyle, show, text
from flyball_streams.dashboard.state.fleet import FleetView
from flyball_streams.dashboard.state.incidents import Incident
from flyball_streams.dashboard.text import count, shown_evidence

SHOWN = 10


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
    """A fixed number of rows whose texts change; ``wanted`` limits them to one subject."""

    def __init__(
        self,
        look: Look,
        title: str = "Incidents",
        wanted: Callable[[Incident], bool] = lambda _: True,
        nothing: str = "No anomaly on flyball.insights.v1 and no warning on flyball.events.v1 so far",
    ) -> None:
        self._look = look
        self._wanted = wanted
        with panel("odd", title):
            with head(title):
                self._sub = text(classes="sub")
            self._empty = text(nothing, "empty")
            with box("rows"):
                self._rows = [_row() for _ in range(SHOWN)]

    def update(self, view: FleetView, now: dict[str, int]) -> None:
        """Patch the rows."""
        known = view.ordered((i for i in view.incidents.values() if self._wanted(i)), now)
        show(self._empty, not known)
        more = len(known) - SHOWN
        self._sub.set_text(f"{SHOWN} of {count(len(known))}, the worst of now first" if more > 0 else "")
        for row, incident in zip(self._rows, known[:SHOWN], strict=False):
            row.tag.set_text(incident.health)
            restyle(row.tag, "tag", incident.health)
            readdress(row.who, view.place(incident.subject), incident_link(incident.id))
            times = f" \N{MULTIPLICATION SIGN}{count(incident.count)}" if incident.count > 1 else ""
            row.by.set_text(incident.detector.replace("_", " ") + times)
            row.fill.style(f"width: {100 * min(1.0, max(0.0, incident.latest.score)):.0f}%")
            restyle(row.fill, "fill", incident.health)
            row.score.set_text(f"{incident.latest.score:.2f}")
            row.why.set_text(why(incident))
            row.when.set_text(self._look.clock(incident.time_ns))
        for i, row in enumerate(self._rows):
            show(row.line, i < len(known))


def why(incident: Incident) -> str:
    """What it rests on, in a line."""
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
