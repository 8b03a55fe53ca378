"""Anomalies and warnings, the newest first."""

from typing import NamedTuple

from nicegui.element import Element
from nicegui.elements.mixins.text_element import TextElement

from flyball_streams.dashboard.panels.elements import box, head, panel, restyle, show, text
from flyball_streams.dashboard.state import Finding, FleetView
from flyball_streams.dashboard.text import clock, shown_evidence

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


class AnomalyPanel:
    """A fixed number of rows whose texts change."""

    def __init__(self) -> None:
        with panel("odd", "Anomalies"):
            with head("Anomalies"):
                self._sub = text(classes="sub")
            self._empty = text("Awaiting anomalies on flyball.insights.v1; none reported so far", "empty")
            with box("rows"):
                self._rows = [_row() for _ in range(SHOWN)]

    def update(self, view: FleetView) -> None:
        """Patch the rows."""
        findings = sorted(view.findings.newest(), key=lambda f: -f.time_ns)
        show(self._empty, not findings)
        more = len(findings) - SHOWN
        self._sub.set_text(f"newest {SHOWN} of {len(findings)}" if more > 0 else "")
        names = device_names(view)
        for row, finding in zip(self._rows, findings[:SHOWN], strict=False):
            row.tag.set_text(finding.health)
            restyle(row.tag, "tag", finding.health)
            row.who.set_text(names.get(finding.subject, finding.subject))
            times = f" \N{MULTIPLICATION SIGN}{finding.count}" if finding.count > 1 else ""
            row.by.set_text(finding.detector.replace("_", " ") + times)
            row.fill.style(f"width: {100 * min(1.0, max(0.0, finding.score)):.0f}%")
            restyle(row.fill, "fill", finding.health)
            row.score.set_text(f"{finding.score:.2f}")
            row.why.set_text(_why(finding))
            row.when.set_text(clock(finding.time_ns))
        for i, row in enumerate(self._rows):
            show(row.line, i < len(findings))


def device_names(view: FleetView) -> dict[str, str]:
    """Device id to node and GPU number."""
    return {
        device.id: f"{node.name} \N{MIDDLE DOT} GPU {device.index}"
        for node in view.nodes.values()
        if node.inventory is not None
        for device in node.inventory.devices
    }


def _why(finding: Finding) -> str:
    parts = [shown_evidence(item) for item in finding.evidence[:2]] or [finding.text or "no evidence given"]
    return "; ".join(parts) + (f" ({finding.workload})" if finding.workload else "")


def _row() -> _Row:
    line = box("row-odd")
    with line:
        tag = text(classes="tag")
        who = text(classes="who")
        by = text(classes="by")
        with box("score"):
            with box("bar"):
                fill = box("fill")
            score = text()
        why = text(classes="why")
        when = text(classes="when")
    line.set_visibility(False)
    return _Row(line, tag, who, by, fill, score, why, when)
