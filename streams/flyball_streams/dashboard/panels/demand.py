"""Demand against forecast of the workload that the reader picks."""

from nicegui import ui
from nicegui.elements.mixins.text_element import TextElement

from flyball_contracts.records import Forecast
from flyball_streams.dashboard.charts.demand import LEGEND, DemandText, demand_options, empty_demand_options
from flyball_streams.dashboard.demand import Workload
from flyball_streams.dashboard.panels.elements import box, describe, head, panel, patch, show, text
from flyball_streams.dashboard.state import FleetView
from flyball_streams.dashboard.text import mixture, number, percent, resize


class DemandPanel:
    """Fan chart with a workload selector."""

    def __init__(self) -> None:
        self._choice: str | None = None
        self._names: list[str] = []
        with panel("demand", "Demand and forecast"):
            with head("Demand and forecast"):
                box("grow")
                self._select = (
                    ui.select([], on_change=lambda event: self._pick(event.value))
                    .props('outlined dense options-dense dark hide-bottom-space aria-label="Workload"')
                    .classes("pick")
                )
            self._empty = text("Awaiting demand on flyball.demand.v1 and forecasts on flyball.insights.v1", "empty")
            self._body = box("full")
            with self._body:
                with box("facts"):
                    facts = [_fact(name) for name in ("observed", "ready", "wanted", "forecast")]
                    with box(tag="span") as self._door:
                        text("gateway ", tag="span")
                        self._arrived = text(tag="b")
                self._observed, self._ready, self._wanted, self._trust = facts
                with box("legend"):
                    for name, colour, opacity in LEGEND:
                        with box(tag="span"):
                            box("swatch").style(f"background: {colour}; opacity: {opacity}")
                            text(name, tag="span")
                self._advice = text("", "facts advice")
                self._mix = text("", "facts advice")
                self._chart = ui.echart(empty_demand_options()).classes("chart").props('role="img"')

    def _pick(self, name: str | None) -> None:
        self._choice = name

    def update(self, view: FleetView) -> None:
        """Patch the chart's options."""
        known = {w.name: w for w in view.workloads.values() if len(w.ticks) or len(w.doors) or w.forecast}
        show(self._empty, not known)
        show(self._body, bool(known))
        show(self._select, bool(known))
        if not known:
            return
        names = sorted(known, key=lambda name: (-_interest(known[name]), name))
        if sorted(names) != sorted(self._names):
            self._names = names
            if self._choice not in known:
                self._choice = names[0]
            self._select.set_options(names, value=self._choice)  # pyright: ignore[reportUnknownMemberType]
        workload = known.get(self._choice or "") or known[names[0]]
        options, facts = demand_options(workload)
        self._observed.set_text(f"{number(facts.observed)} {facts.unit}")
        self._ready.set_text(f"{number(facts.ready)} of {number(facts.replicas)}")
        self._wanted.set_text(f"{number(facts.wanted)}")
        self._trust.set_text(workload.trust)
        arrived = _arrived(facts)
        show(self._door, bool(arrived))
        self._arrived.set_text(arrived)
        describe(self._trust, "title", _coverage(workload.forecast))
        advice = workload.advice
        show(self._advice, advice is not None)
        if advice is not None and advice.resources is not None:
            self._advice.set_text(f"Advice: {resize(advice.resources, advice.resources_before)}")
            describe(self._advice, "title", advice.reason)
        choice = workload.choice
        show(self._mix, choice is not None)
        if choice is not None:
            self._mix.set_text(f"Machines: {mixture(choice.mix)}")
            describe(self._mix, "title", choice.reason)
        patch(self._chart, options, f"Demand of {workload.name}: {number(facts.observed)} {facts.unit}")


def _fact(name: str) -> TextElement:
    with box(tag="span"):
        text(f"{name} ", tag="span")
        return text(tag="b")


def _arrived(facts: DemandText) -> str:
    told = [] if facts.arrived is None else [f"{number(facts.arrived)} requests/s"]
    told += [] if facts.waiting is None else [f"{number(facts.waiting)} waiting"]
    return ", ".join(told)


def _interest(workload: Workload) -> float:
    """Workloads with a forecast first, services before jobs."""
    serves = workload.spec is not None and workload.spec.kind == "inference"
    return 2.0 * (workload.forecast is not None) + serves


def _coverage(forecast: Forecast | None) -> str:
    if forecast is None or not forecast.coverage or len(forecast.coverage) != len(forecast.levels):
        return "its coverage is not known yet; sizing does without it until then"
    pairs = zip(forecast.coverage, forecast.levels, strict=True)
    return ", ".join(f"{percent(covered)} of the past below the {percent(level)} line" for covered, level in pairs)
