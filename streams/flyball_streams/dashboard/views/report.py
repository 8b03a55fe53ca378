"""One report: an anomaly or an event of one subject, and its occurrences."""

from collections.abc import Sequence

import numpy as np

from flyball_streams.dashboard.charts.history import history_options
from flyball_streams.dashboard.links import gpu_link
from flyball_streams.dashboard.panels.decisions import DecisionPanel
from flyball_streams.dashboard.panels.elements import box, chart, head, panel, patch, restyle, show, text
from flyball_streams.dashboard.panels.incidents import IncidentPanel
from flyball_streams.dashboard.preferences import Preferences
from flyball_streams.dashboard.state.fleet import FleetView
from flyball_streams.dashboard.state.reports import Report
from flyball_streams.dashboard.state.summary import SummaryCache
from flyball_streams.dashboard.text import count, quantity, short_name
from flyball_streams.dashboard.views.base import Fact, FactPanel, HistoryPanel, Table, Title, View, place_facts

MAX_SEEN = 60


class ReportView(View):
    """Observed and expected values, occurrences over time, and related decisions."""

    def __init__(self, name: str, prefs: Preferences) -> None:
        self._name = name
        self._prefs = prefs
        self._subject = self._node = self._workload = ""
        self._title = Title("Incident", name)
        with box("board two", "main"):
            with box("stack"):
                self._facts = FactPanel("About it", f"No incident {name} is known; it may be too old for this page")
            with box("stack"):
                self._history = HistoryPanel(prefs)
                with panel("seen", "Reports"):
                    with head("Each time it was reported"):
                        self._sub = text(classes="sub")
                    self._chart = chart(history_options({}, "score", prefs, top=1.0), "chart chart-history")
                    self._seen = Table(("time", "score", "seen"))
                self._others = IncidentPanel(
                    prefs,
                    "Other incidents of the same node",
                    wanted=lambda report: report.id != name and bool(self._node) and report.node == self._node,
                    nothing="None",
                )
                self._decisions = DecisionPanel(
                    prefs,
                    "Decisions about its workload or device",
                    wanted=lambda decision: (
                        (bool(self._workload) and decision.workload == self._workload)
                        or self._subject in decision.named_devices
                    ),
                    nothing="No decision about it so far",
                )

    def update(self, view: FleetView, cache: SummaryCache) -> None:
        """Patch what changed."""
        report = view.reports.get(self._name)
        show(self._title.chip, report is not None)
        if report is not None:
            self._subject, self._node, self._workload = report.subject, report.node, report.workload
            self._title.name.set_text(f"{report.detector.replace('_', ' ')} on {view.place(report.subject)}")
            self._title.chip.set_text(report.health)
            restyle(self._title.chip, "tag", report.health)
            known = view.places.get(report.subject)
            self._facts.update(_facts(report, view, self._prefs, gpu=known is not None))
            self._reports(report)
            node = view.nodes.get(report.node)
            devices = node.inventory.devices if node and node.inventory else ()
            row = next((i for i, device in enumerate(devices) if device.id == report.subject), None)
            self._history.update(node, row)
        self._others.update(view, cache.now)
        self._decisions.update(view)

    def _reports(self, report: Report) -> None:
        seen = sorted(report.seen, key=lambda occurrence: occurrence.time_ns)
        times = np.array([occurrence.time_ns for occurrence in seen], np.int64)
        scores = np.array([occurrence.score for occurrence in seen], np.float32)
        patch(
            self._chart,
            history_options({"score": (times, scores)}, "score", self._prefs, top=1.0),
            "Score of each report",
        )
        shown = f", newest {MAX_SEEN} shown" if len(seen) > MAX_SEEN else ""
        self._sub.set_text(f"{count(report.count)} times{shown}")
        rows: list[Sequence[str | tuple[str, str]]] = []
        for occurrence in seen[::-1][:MAX_SEEN]:
            parts = [
                f"{short_name(item.name)} {quantity(item.value, item.unit)}"
                + ("" if item.expected is None else f" (expected {quantity(item.expected, item.unit)})")
                for item in occurrence.evidence
            ]
            rows.append(
                (self._prefs.clock(occurrence.time_ns), f"{occurrence.score:.2f}", "; ".join(parts) or occurrence.text)
            )
        self._seen.update(rows)


def _facts(report: Report, view: FleetView, prefs: Preferences, *, gpu: bool) -> list[Fact]:
    latest = report.latest
    return [
        Fact("subject", view.place(report.subject), gpu_link(report.subject) if gpu else ""),
        *(fact for fact in place_facts(report.node, report.workload) if fact.link),
        Fact("cell", report.cell),
        Fact("detected as", report.detector.replace("_", " ")),
        Fact("score", f"{latest.score:.2f}"),
        Fact("said", latest.text),
        Fact("first reported", prefs.stamp(report.first_ns)),
        Fact("last reported", prefs.stamp(report.time_ns)),
        *(
            Fact(
                short_name(item.name),
                quantity(item.value, item.unit)
                + ("" if item.expected is None else f", expected {quantity(item.expected, item.unit)}"),
            )
            for item in latest.evidence
        ),
    ]
