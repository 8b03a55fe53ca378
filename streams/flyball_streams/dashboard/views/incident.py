"""One incident: an anomaly or an event of one subject, and when it came."""

from collections.abc import Sequence

import numpy as np

from flyball_contracts.records import Migrate
from flyball_streams.dashboard.charts.history import history_options
from flyball_streams.dashboard.links import gpu_link
from flyball_streams.dashboard.look import Look
from flyball_streams.dashboard.panels.decisions import DecisionPanel
from flyball_streams.dashboard.panels.elements import box, chart, head, panel, patch, restyle, show, text
from flyball_streams.dashboard.panels.incidents import IncidentPanel
from flyball_streams.dashboard.state.fleet import FleetView
from flyball_streams.dashboard.state.incidents import Incident
from flyball_streams.dashboard.state.summary import Glance
from flyball_streams.dashboard.text import count, quantity, short_name
from flyball_streams.dashboard.views.base import Fact, FactPanel, HistoryPanel, Table, Title, View, place_facts

MAX_SEEN = 60


class IncidentView(View):
    """What was seen and expected, each time that it was reported, and what was decided about it."""

    def __init__(self, name: str, look: Look) -> None:
        self._name = name
        self._look = look
        self._subject = self._node = self._workload = ""
        self._title = Title("Incident", name)
        with box("board two", "main"):
            with box("stack"):
                self._facts = FactPanel("About it", f"No incident {name} is known; it may be too old for this page")
            with box("stack"):
                self._history = HistoryPanel(look)
                with panel("seen", "Reports"):
                    with head("Each time it was reported"):
                        self._sub = text(classes="sub")
                    self._chart = chart(history_options({}, "score", look, top=1.0), "chart chart-history")
                    self._seen = Table(("time", "score", "seen"))
                self._incidents = IncidentPanel(
                    look,
                    "Other incidents of the same node",
                    wanted=lambda incident: incident.id != name and bool(self._node) and incident.node == self._node,
                    nothing="None",
                )
                self._decisions = DecisionPanel(
                    look,
                    "Decisions about its workload or device",
                    wanted=lambda decision: (
                        (bool(self._workload) and decision.workload == self._workload)
                        or (isinstance(decision, Migrate) and decision.from_device == self._subject)
                    ),
                    nothing="No decision about it so far",
                )

    def update(self, view: FleetView, glance: Glance) -> None:
        """Patch what changed."""
        incident = view.incidents.get(self._name)
        show(self._title.chip, incident is not None)
        if incident is not None:
            self._subject, self._node, self._workload = incident.subject, incident.node, incident.workload
            self._title.name.set_text(f"{incident.detector.replace('_', ' ')} on {view.place(incident.subject)}")
            self._title.chip.set_text(incident.health)
            restyle(self._title.chip, "tag", incident.health)
            known = view.places.get(incident.subject)
            self._facts.update(_facts(incident, view, self._look, gpu=known is not None))
            self._reports(incident)
            node = view.nodes.get(incident.node)
            devices = node.inventory.devices if node and node.inventory else ()
            row = next((i for i, device in enumerate(devices) if device.id == incident.subject), None)
            self._history.update(node, row)
        self._incidents.update(view, glance.now)
        self._decisions.update(view)

    def _reports(self, incident: Incident) -> None:
        seen = sorted(incident.seen, key=lambda report: report.time_ns)
        times = np.array([report.time_ns for report in seen], np.int64)
        scores = np.array([report.score for report in seen], np.float32)
        patch(
            self._chart,
            history_options({"score": (times, scores)}, "score", self._look, top=1.0),
            "Score of each report",
        )
        shown = f", newest {MAX_SEEN} shown" if len(seen) > MAX_SEEN else ""
        self._sub.set_text(f"{count(incident.count)} times{shown}")
        rows: list[Sequence[str | tuple[str, str]]] = []
        for report in seen[::-1][:MAX_SEEN]:
            parts = [
                f"{short_name(item.name)} {quantity(item.value, item.unit)}"
                + ("" if item.expected is None else f" (expected {quantity(item.expected, item.unit)})")
                for item in report.evidence
            ]
            rows.append((self._look.clock(report.time_ns), f"{report.score:.2f}", "; ".join(parts) or report.text))
        self._seen.update(rows)


def _facts(incident: Incident, view: FleetView, look: Look, *, gpu: bool) -> list[Fact]:
    latest = incident.latest
    return [
        Fact("subject", view.place(incident.subject), gpu_link(incident.subject) if gpu else ""),
        *(fact for fact in place_facts(incident.node, incident.workload) if fact.link),
        Fact("cell", incident.cell),
        Fact("detected as", incident.detector.replace("_", " ")),
        Fact("score", f"{latest.score:.2f}"),
        Fact("said", latest.text),
        Fact("first reported", look.stamp(incident.first_ns)),
        Fact("last reported", look.stamp(incident.time_ns)),
        *(
            Fact(
                short_name(item.name),
                quantity(item.value, item.unit)
                + ("" if item.expected is None else f", expected {quantity(item.expected, item.unit)}"),
            )
            for item in latest.evidence
        ),
    ]
