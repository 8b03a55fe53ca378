"""Demand and forecast of one workload, its replicas, and its decisions as marks."""

from nicegui import ui
from nicegui.elements.mixins.text_element import TextElement

from flyball_contracts.records import Capacity, Forecast
from flyball_contracts.records.commands.portion import allocation
from flyball_streams.dashboard.charts.demand import (
    DemandText,
    demand_options,
    empty_demand_options,
    legend,
    window,
)
from flyball_streams.dashboard.charts.marks import marks_of
from flyball_streams.dashboard.links import workload_link
from flyball_streams.dashboard.panels.elements import (
    Choices,
    anchor,
    box,
    chart,
    describe,
    head,
    panel,
    patch,
    readdress,
    show,
    text,
)
from flyball_streams.dashboard.preferences import Preferences
from flyball_streams.dashboard.state.demand import Workload
from flyball_streams.dashboard.state.fleet import FleetView
from flyball_streams.dashboard.text import number, percent, plural, span


class DemandPanel:
    """Fan chart with replicas and marks; with a selector unless it shows a single ``workload``."""

    def __init__(self, prefs: Preferences, workload: str = "", focus: str = "") -> None:
        self._prefs = prefs
        self._choice: str | None = workload or None
        self._fixed = bool(workload)
        self._focus = focus
        self._names: list[str] = []
        with panel("demand", "Demand, forecast and decisions"):
            with head("Demand, forecast and decisions"):
                self._about = text(classes="sub")
                box("grow")
                self._span = Choices("Window", "last ticks", lambda: None)
                self._span.offer(["all that is known"])
                self._open = anchor("its view", "#", "open")
                self._select = (
                    ui.select([], on_change=lambda event: self._pick(event.value))
                    .props('outlined dense options-dense hide-bottom-space aria-label="Workload"')
                    .classes("pick")
                )
            self._empty = text("Awaiting demand on flyball.demand.v1 and forecasts on flyball.insights.v1", "empty")
            with box("full") as self._body:
                with box("facts"):
                    facts = [_fact(name) for name in ("observed", "ready", "wanted", "forecast")]
                    with box(tag="span") as self._arriving:
                        text("gateway ", tag="span")
                        self._arrived = text(tag="b")
                    with box(tag="span") as self._slow:
                        text("latency ", tag="span")
                        self._latency = text(tag="b")
                self._observed, self._ready, self._wanted, self._trust = facts
                with box("legend"):
                    for name, colour, opacity in legend(prefs):
                        with box(tag="span"):
                            box("swatch").style(f"background: {colour}; opacity: {opacity}")
                            text(name, tag="span")
                    for name, style in (
                        ("decision", "flag"),
                        ("not done", "flag open"),
                        ("planned, not carried out", "flag hollow"),
                    ):
                        with box(tag="span"):
                            box(f"swatch {style}")
                            text(name, tag="span")
                self._answers = text("", "facts advice")
                self._advice = text("", "facts advice")
                self._machines = text("", "facts advice")
                self._chart = chart(empty_demand_options(prefs), "chart chart-demand")
        show(self._select, not self._fixed)
        show(self._open, not self._fixed)

    def _pick(self, name: str | None) -> None:
        self._choice = name

    def update(self, view: FleetView) -> None:
        """Patch the chart's options."""
        known = {w.name: w for w in view.workloads.values() if len(w.ticks) or len(w.gateways) or w.forecast}
        if self._fixed:
            known = {name: workload for name, workload in known.items() if name == self._choice}
        show(self._empty, not known)
        show(self._body, bool(known))
        show(self._select, bool(known) and not self._fixed)
        show(self._open, bool(known) and not self._fixed)
        if not known:
            return
        names = sorted(known, key=lambda name: (-_interest(known[name]), name))
        if sorted(names) != sorted(self._names):
            self._names = names
            if self._choice not in known:
                self._choice = names[0]
            self._select.set_options(names, value=self._choice)  # pyright: ignore[reportUnknownMemberType]
        workload = known.get(self._choice or "") or known[names[0]]
        decisions = view.journal.newest(lambda decision: decision.workload == workload.name)
        shown = window(workload, whole=self._span.value is not None)
        focus = view.journal.decisions.get(self._focus)
        if focus is not None and shown and focus.time_ns < shown[0].end_ns:
            shown = window(workload, whole=True)
        marks = marks_of(view.journal, decisions, shown[0].end_ns if shown else 0)
        options, facts = demand_options(workload, self._prefs, marks, self._focus, shown)
        about = [f"last reported {self._prefs.stamp(workload.seen_ns)}"] if workload.is_gone else []
        about += [f"{plural(len(marks), 'decision')} in the window"] if marks else []
        self._about.set_text(", ".join(about))
        readdress(self._open, f"all about {workload.name}", workload_link(workload.name))
        self._observed.set_text(f"{number(facts.observed)} {facts.unit}")
        self._ready.set_text(f"{number(facts.ready)} of {number(facts.replicas)}")
        self._wanted.set_text(f"{number(facts.wanted)}")
        self._trust.set_text(workload.trust)
        arrived = _arrived(facts)
        show(self._arriving, bool(arrived))
        self._arrived.set_text(arrived)
        show(self._slow, facts.latency_s is not None)
        self._latency.set_text(span(facts.latency_s) if facts.latency_s is not None else "")
        describe(self._trust, "title", _coverage(workload.forecast))
        answers = _answers(workload.capacity)
        show(self._answers, bool(answers))
        self._answers.set_text(f"Answers: {answers}")
        advice = workload.advice
        show(self._advice, advice is not None)
        if advice is not None and advice.resources is not None:
            self._advice.set_text(f"Advice: {advice.resources.change(advice.resources_before)}")
            describe(self._advice, "title", advice.reason)
        choice = workload.choice
        show(self._machines, choice is not None)
        if choice is not None:
            self._machines.set_text(f"Machines: {allocation(choice.mix)}")
            describe(self._machines, "title", choice.reason)
        label = f"Demand of {workload.name}: {number(facts.observed)} {facts.unit}, {plural(len(marks), 'decision')}"
        patch(self._chart, options, label)


def _fact(name: str) -> TextElement:
    with box(tag="span"):
        text(f"{name} ", tag="span")
        return text(tag="b")


def _arrived(facts: DemandText) -> str:
    parts = [] if facts.arrived is None else [f"{number(facts.arrived)} requests/s"]
    parts += [] if facts.waiting is None else [f"{number(facts.waiting)} waiting"]
    return ", ".join(parts)


def _answers(capacity: Capacity | None) -> str:
    """Latencies of a language model's replicas; empty if their servers report none."""
    if capacity is None:
        return ""
    parts = [] if capacity.first_token_s is None else [f"first token after {span(capacity.first_token_s)}"]
    parts += [] if capacity.output_token_s is None else [f"{span(capacity.output_token_s)} from token to token"]
    parts += [] if capacity.kv_cache is None else [f"KV cache {percent(capacity.kv_cache)} full"]
    return ", ".join(parts)


def _interest(workload: Workload) -> float:
    """Sort key: workloads with a forecast first, services before jobs; what has gone last."""
    serves = workload.spec is not None and workload.spec.kind == "inference"
    return 2.0 * (workload.forecast is not None) + serves - 4.0 * workload.is_gone


def _coverage(forecast: Forecast | None) -> str:
    if forecast is None or not forecast.coverage or len(forecast.coverage) != len(forecast.levels):
        return "its coverage is not known yet; sizing does without it until then"
    pairs = zip(forecast.coverage, forecast.levels, strict=True)
    return ", ".join(f"{percent(covered)} of the past below the {percent(level)} line" for covered, level in pairs)
