"""One decision: its reason, expected and observed changes, and life cycle as text."""

from flyball_contracts.records import AnyDecision, Effect, Outcome, SubjectState
from flyball_streams.dashboard.links import gpu_link, node_link, workload_link
from flyball_streams.dashboard.panels.decisions import DecisionPanel, what
from flyball_streams.dashboard.panels.demand import DemandPanel
from flyball_streams.dashboard.panels.elements import box, head, panel, restyle, show, text
from flyball_streams.dashboard.preferences import Preferences
from flyball_streams.dashboard.sentences import effect_rows, outcome_text, state_rows, step
from flyball_streams.dashboard.state.fleet import FleetView
from flyball_streams.dashboard.state.summary import SummaryCache
from flyball_streams.dashboard.text import UNKNOWN, percent, quantity
from flyball_streams.dashboard.views.base import Fact, FactPanel, Rows, Table, Title, View


class DecisionView(View):
    """All facts of a decision; its link stays valid while the page keeps the decision."""

    def __init__(self, name: str, prefs: Preferences) -> None:
        self._name = name
        self._prefs = prefs
        self._demand: DemandPanel | None = None
        self._others: DecisionPanel | None = None
        self._title = Title("Decision", name)
        self._reason = text(classes="lead")
        self._note = text(classes="banner dry")
        self._note.set_text("This was planned in a dry run and not carried out: nothing in the fleet changed.")
        self._note.set_visibility(False)
        with box("board two", "main"):
            with box("stack"):
                self._facts = FactPanel(
                    "About it",
                    f"No decision {name} is known; it may be too old for this page, or not have arrived yet",
                )
                with panel("rests", "Evidence"):
                    head("What it rests on")
                    self._evidence = Table(("number", "value", "expected"))
            with box("stack"):
                with panel("life", "Its life"):
                    head("Its life")
                    self._life = Table(("time", "what happened"))
                with panel("effect", "Expected and observed"):
                    with head("Expected and observed"):
                        self._lag = text(classes="sub")
                    self._states = Table(("state", "before", "expected", "observed"))
                    self._effects = Table(("effect", "expected", "observed"))
                self._more = box("stack")

    def update(self, view: FleetView, cache: SummaryCache) -> None:
        """Patch what changed."""
        decision = view.journal.decisions.get(self._name)
        if decision is None:
            return
        outcome = view.journal.outcome(decision.id)
        style, label = outcome_text(outcome)
        self._title.name.set_text(f"{type(decision).__name__} {decision.workload}: {what(decision, view, self._prefs)}")
        show(self._title.chip, True)
        self._title.chip.set_text(label)
        restyle(self._title.chip, "was", style)
        show(self._note, style == "planned")
        self._reason.set_text(decision.reason)
        self._facts.update(_facts(decision, view, self._prefs, outcome))
        life = view.journal.life(decision.id)
        self._life.update(_life(decision, life, self._prefs))
        self._states.update(_states(life, style == "planned"))
        observed = next((o.effect for o in reversed(life) if o.effect is not None), None)
        self._effects.update(_effects(decision.expected, observed, style == "planned"))
        after = next((o.effect_after_s for o in reversed(life) if o.effect_after_s is not None), None)
        shown = after is not None and style == "done"
        self._lag.set_text(f"the effect was seen after {quantity(after, 's')}" if shown else "")
        self._evidence.update(
            [
                (
                    item.name + (f" (record {item.record[:8]})" if item.record else ""),
                    quantity(item.value, item.unit),
                    UNKNOWN if item.expected is None else quantity(item.expected, item.unit),
                )
                for item in decision.evidence
            ]
        )
        self._around(decision)
        if self._demand is not None and self._others is not None:
            self._demand.update(view)
            self._others.update(view)

    def _around(self, decision: AnyDecision) -> None:
        if self._demand is None:
            with self._more:
                self._demand = DemandPanel(self._prefs, decision.workload, decision.id)
                self._others = DecisionPanel(
                    self._prefs,
                    f"Other decisions about {decision.workload}",
                    wanted=lambda other: other.workload == decision.workload and other.id != decision.id,
                    nothing="None",
                )


def _facts(decision: AnyDecision, view: FleetView, prefs: Preferences, outcome: Outcome | None) -> list[Fact]:
    facts = [
        Fact("workload", decision.workload, workload_link(decision.workload) if decision.workload else ""),
        Fact("cell", decision.cell),
        Fact("target", decision.target),
        Fact("decided", prefs.stamp(decision.time_ns)),
        Fact("expires", prefs.stamp(decision.expires_ns)),
        Fact("policy", decision.policy),
        Fact("confidence", percent(decision.confidence)),
    ]
    facts += [Fact("replicas that it names", ", ".join(decision.named_replicas))]
    facts += [Fact("node", node, node_link(node)) for node in decision.named_nodes if node]
    facts += [Fact("GPU", view.place(device), gpu_link(device)) for device in decision.named_devices]
    if outcome is not None:
        facts += [
            Fact("mode", "dry run" if outcome.mode == "dry_run" else outcome.mode),
            Fact("driver", outcome.driver),
            Fact("actuator", outcome.actuator),
            Fact("operation", outcome.operation if outcome.operation != decision.id else ""),
        ]
    return [*facts, Fact("id", decision.id)]


def _life(decision: AnyDecision, life: list[Outcome], prefs: Preferences) -> Rows:
    made = f"Decided by {decision.policy} with confidence {percent(decision.confidence)}."
    rows = [(prefs.clock(decision.time_ns), made)]
    rows += [(prefs.clock(outcome.time_ns), step(outcome, decision.time_ns)) for outcome in life]
    if not life:
        rows.append(("", "No outcome has arrived yet."))
    elif not life[-1].final:
        rows.append(("", "Its last word is awaited."))
    return rows


def _states(life: list[Outcome], planned: bool) -> Rows:
    def last(states: list[SubjectState | None]) -> SubjectState | None:
        return next((state for state in reversed(states) if state is not None), None)

    states = [last([o.before for o in life]), last([o.expected for o in life]), last([o.observed for o in life])]
    missing = "not carried out" if planned else "not observed"
    return [
        (name, values[0] or UNKNOWN, values[1] or UNKNOWN, (values[2] or missing) if not planned else missing)
        for name, values in state_rows(states)
    ]


def _effects(expected: Effect, observed: Effect | None, planned: bool) -> Rows:
    return [
        (name, wanted, "not carried out" if planned else seen) for name, wanted, seen in effect_rows(expected, observed)
    ]
