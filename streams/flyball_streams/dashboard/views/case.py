"""One incident: where and why, the evidence with the cause first, what was done, and how to answer."""

from flyball_contracts.records import Incident, Migrate
from flyball_streams.dashboard.links import decision_link, gpu_link, node_link, workload_link
from flyball_streams.dashboard.look import Look
from flyball_streams.dashboard.panels.decisions import DecisionPanel
from flyball_streams.dashboard.panels.elements import box, head, panel, restyle, show, text
from flyball_streams.dashboard.panels.incidents import HEALTH, IncidentPanel, place_of
from flyball_streams.dashboard.state.fleet import FleetView
from flyball_streams.dashboard.state.summary import Glance
from flyball_streams.dashboard.text import plural, shown_evidence
from flyball_streams.dashboard.views.base import Fact, FactPanel, HistoryPanel, Rows, Table, Title, View


class CaseView(View):
    """Its place and cause, the symptoms that lead there, decisions, and the commands to answer it."""

    def __init__(self, name: str, look: Look) -> None:
        self._name = name
        self._look = look
        self._case: Incident | None = None
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
                self._history = HistoryPanel(look)
                self._reports = IncidentPanel(
                    look,
                    "Reports of the same nodes",
                    wanted=lambda report: self._case is not None and report.node in self._case.nodes,
                    nothing="None",
                )
                self._decisions = DecisionPanel(
                    look,
                    "Decisions about its workloads or GPUs",
                    wanted=lambda decision: (
                        self._case is not None
                        and (
                            decision.workload in self._case.workloads
                            or (isinstance(decision, Migrate) and decision.from_device in self._case.devices)
                        )
                    ),
                    nothing="No decision about it so far",
                )

    def update(self, view: FleetView, glance: Glance) -> None:
        """Patch what changed."""
        case = self._case = view.cases.get(self._name)
        show(self._title.chip, case is not None)
        if case is not None:
            self._title.name.set_text(f"{case.cause.replace('_', ' ')}: {place_of(case, view)}")
            self._title.chip.set_text(case.severity if case.status == "open" else case.status)
            restyle(self._title.chip, "tag", HEALTH[case.severity])
            self._facts.update(_facts(case, view, self._look))
            self._commands.update([(word, line) for word, line in _commands(case)])
            self._sub.set_text(plural(case.symptom_count, "symptom"))
            self._symptoms.update(_symptoms(case, view, self._look))
            show(self._idle, not case.actions)
            self._actions.update(_actions(case, self._look))
            node = view.nodes.get(case.node or next(iter(case.nodes), ""))
            devices = node.inventory.devices if node and node.inventory else ()
            self._history.update(node, next((i for i, d in enumerate(devices) if d.id == case.device), None))
        self._reports.update(view, glance.now)
        self._decisions.update(view)


def _facts(case: Incident, view: FleetView, look: Look) -> list[Fact]:
    said = {None: "", True: "true", False: "a false alarm"}[case.label]
    merged = case.merged_into
    return [
        Fact("what", case.summary),
        Fact("place", place_of(case, view), gpu_link(case.device) if case.device in view.places else ""),
        Fact("cause", f"{case.cause.replace('_', ' ')}, by a {case.strength}"),
        Fact("state", case.status if not merged else f"part of {merged}", f"/incidents/{merged}" if merged else ""),
        Fact("cell", case.cell),
        *(Fact("node", node, node_link(node)) for node in case.nodes),
        *(Fact("workload", name, workload_link(name)) for name in case.workloads),
        Fact("GPUs affected", str(case.gpus_affected or "")),
        *(
            Fact(
                f"{node} is {one.condition}",
                (one.held and f"waits for a person: {one.held}") or f"{one.gpus_moved} GPUs leave or restart with it",
                node_link(node),
            )
            for node in case.nodes
            if (one := view.conditions.get(node)) is not None and one.condition != "back"
        ),
        Fact("nodes of the same gangs", ", ".join(case.peers)),
        Fact("began", look.stamp(case.onset_ns)),
        Fact("last seen", look.stamp(case.seen_ns)),
        Fact("silenced by", case.silence),
        Fact("taken by", case.acknowledged_by),
        Fact("people said it was", said),
    ]


def _commands(case: Incident) -> list[tuple[str, str]]:
    """The page reads only; who may answer does so with their own rights on the broker."""
    one = case.id[:12]
    return [
        ("take it on", f'flyball incidents ack {one} --reason "..."'),
        ("silence it", f'flyball incidents silence --cell {case.cell} --incident {case.id} --for 3600 --reason "..."'),
        ("say it was true", f'flyball incidents label {one} --true --reason "..."'),
        ("or false", f'flyball incidents label {one} --false --reason "..."'),
    ]


def _symptoms(case: Incident, view: FleetView, look: Look) -> Rows:
    rows: list[list[str | tuple[str, str]]] = []
    for symptom in case.symptoms:
        where: str | tuple[str, str] = symptom.workload if symptom.gang else symptom.node
        if symptom.device and not symptom.gang:
            where = view.place(symptom.device), gpu_link(symptom.device)
        told = symptom.text or "; ".join(shown_evidence(item) for item in symptom.evidence[:3])
        times = f" \N{MULTIPLICATION SIGN}{symptom.count}" if symptom.count > 1 else ""
        what = f"{symptom.detector}{times}" + (f": {told}" if told else "")
        rows.append([look.clock(symptom.since_ns), symptom.strength, where, what])
    return rows


def _actions(case: Incident, look: Look) -> Rows:
    return [
        (
            look.clock(action.time_ns),
            (f"{action.type} {action.workload}", decision_link(action.decision)),
            action.status + (f": {action.detail}" if action.detail else ""),
        )
        for action in case.actions
    ]
