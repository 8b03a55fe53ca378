"""One incident: place and cause, evidence, actions, and the commands to respond."""

from flyball_contracts.records import Incident
from flyball_streams.dashboard.links import decision_link, gpu_link, node_link, workload_link
from flyball_streams.dashboard.panels.decisions import DecisionPanel
from flyball_streams.dashboard.panels.elements import box, head, panel, restyle, show, text
from flyball_streams.dashboard.panels.incidents import HEALTH, IncidentPanel, place_of
from flyball_streams.dashboard.preferences import Preferences
from flyball_streams.dashboard.state.fleet import FleetView
from flyball_streams.dashboard.state.summary import SummaryCache
from flyball_streams.dashboard.text import plural, shown_evidence
from flyball_streams.dashboard.views.base import Fact, FactPanel, HistoryPanel, Rows, Table, Title, View


class IncidentView(View):
    """Place and cause, symptoms, decisions, and the commands to respond to it."""

    def __init__(self, name: str, prefs: Preferences) -> None:
        self._name = name
        self._prefs = prefs
        self._incident: Incident | None = None
        self._title = Title("Incident", name)
        with box("board two", "main"):
            with box("stack"):
                self._facts = FactPanel("About it", f"No incident {name} is known; it may be too old for this page")
                with panel("answer", "Answer it"):
                    head("Answer it")
                    self._commands = Table(("to", "command"))
            with box("stack"):
                with panel("seen", "Evidence"):
                    with head("Evidence, the cause first"):
                        self._sub = text(classes="sub")
                    self._symptoms = Table(("since", "kind", "where", "what"))
                with panel("done", "What was done"):
                    with head("What was done"):
                        self._idle = text("no decision so far", "sub")
                    self._actions = Table(("time", "decision", "status"))
                self._history = HistoryPanel(prefs)
                self._reports = IncidentPanel(
                    prefs,
                    "Reports of the same nodes",
                    wanted=lambda report: self._incident is not None and report.node in self._incident.nodes,
                    nothing="None",
                )
                self._decisions = DecisionPanel(
                    prefs,
                    "Decisions about its workloads or GPUs",
                    wanted=lambda decision: (
                        self._incident is not None
                        and (
                            decision.workload in self._incident.workloads
                            or any(device in self._incident.devices for device in decision.named_devices)
                        )
                    ),
                    nothing="No decision about it so far",
                )

    def update(self, view: FleetView, cache: SummaryCache) -> None:
        """Patch what changed."""
        incident = self._incident = view.incidents.get(self._name)
        show(self._title.chip, incident is not None)
        if incident is not None:
            self._title.name.set_text(f"{incident.cause.replace('_', ' ')}: {place_of(incident, view)}")
            self._title.chip.set_text(incident.severity if incident.status == "open" else incident.status)
            restyle(self._title.chip, "tag", HEALTH[incident.severity])
            self._facts.update(_facts(incident, view, self._prefs))
            self._commands.update([(word, line) for word, line in _commands(incident)])
            self._sub.set_text(plural(incident.symptom_count, "symptom"))
            self._symptoms.update(_symptoms(incident, view, self._prefs))
            show(self._idle, not incident.actions)
            self._actions.update(_actions(incident, self._prefs))
            node = view.nodes.get(incident.node or next(iter(incident.nodes), ""))
            devices = node.inventory.devices if node and node.inventory else ()
            self._history.update(node, next((i for i, d in enumerate(devices) if d.id == incident.device), None))
        self._reports.update(view, cache.now)
        self._decisions.update(view)


def _facts(incident: Incident, view: FleetView, prefs: Preferences) -> list[Fact]:
    label = {None: "", True: "true", False: "a false alarm"}[incident.label]
    merged = incident.merged_into
    return [
        Fact("what", incident.summary),
        Fact("place", place_of(incident, view), gpu_link(incident.device) if incident.device in view.places else ""),
        Fact("cause", f"{incident.cause.replace('_', ' ')}, by a {incident.strength}"),
        Fact("state", incident.status if not merged else f"part of {merged}", f"/incidents/{merged}" if merged else ""),
        Fact("cell", incident.cell),
        *(Fact("node", node, node_link(node)) for node in incident.nodes),
        *(Fact("workload", name, workload_link(name)) for name in incident.workloads),
        Fact("GPUs affected", str(incident.gpus_affected or "")),
        *(
            Fact(
                f"{node} is {one.condition}",
                (one.held and f"waits for a person: {one.held}") or f"{one.gpus_moved} GPUs leave or restart with it",
                node_link(node),
            )
            for node in incident.nodes
            if (one := view.conditions.get(node)) is not None and one.condition != "back"
        ),
        Fact("nodes of the same gangs", ", ".join(incident.peers)),
        Fact("began", prefs.stamp(incident.onset_ns)),
        Fact("last seen", prefs.stamp(incident.seen_ns)),
        Fact("silenced by", incident.silence),
        Fact("taken by", incident.acknowledged_by),
        Fact("people said it was", label),
    ]


def _commands(incident: Incident) -> list[tuple[str, str]]:
    """Commands to respond; the page itself only reads, and users respond with their own rights on the broker."""
    one = incident.id[:12]
    return [
        ("take it on", f'flyball incidents ack {one} --reason "..."'),
        (
            "silence it",
            f'flyball incidents silence --cell {incident.cell} --incident {incident.id} --for 3600 --reason "..."',
        ),
        ("say it was true", f'flyball incidents label {one} --true --reason "..."'),
        ("or false", f'flyball incidents label {one} --false --reason "..."'),
    ]


def _symptoms(incident: Incident, view: FleetView, prefs: Preferences) -> Rows:
    rows: list[list[str | tuple[str, str]]] = []
    for symptom in incident.symptoms:
        where: str | tuple[str, str] = symptom.workload if symptom.gang else symptom.node
        if symptom.device and not symptom.gang:
            where = view.place(symptom.device), gpu_link(symptom.device)
        description = symptom.text or "; ".join(shown_evidence(item) for item in symptom.evidence[:3])
        times = f" \N{MULTIPLICATION SIGN}{symptom.count}" if symptom.count > 1 else ""
        what = f"{symptom.detector}{times}" + (f": {description}" if description else "")
        rows.append([prefs.clock(symptom.since_ns), symptom.strength, where, what])
    return rows


def _actions(incident: Incident, prefs: Preferences) -> Rows:
    return [
        (
            prefs.clock(action.time_ns),
            (f"{action.type} {action.workload}", decision_link(action.decision)),
            action.status + (f": {action.detail}" if action.detail else ""),
        )
        for action in incident.actions
    ]
