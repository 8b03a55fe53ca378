"""Carbon curves and the work planned on them."""

from nicegui.element import Element
from nicegui.elements.mixins.text_element import TextElement

from flyball_streams.dashboard.charts.carbon import MAX_PLANS, PlanText, carbon_options
from flyball_streams.dashboard.links import workload_link
from flyball_streams.dashboard.panels.elements import anchor, box, chart, head, panel, patch, readdress, show, text
from flyball_streams.dashboard.preferences import Preferences
from flyball_streams.dashboard.state.fleet import FleetView
from flyball_streams.dashboard.text import percent, plural, span


class CarbonPanel:
    """Area curves, planned slots as bars below them, and each plan as text."""

    def __init__(self, prefs: Preferences) -> None:
        self._prefs = prefs
        with panel("carbon", "Carbon and planned work"):
            with head("Carbon and planned work"):
                text("intensity by grid zone", "sub")
            self._empty = text("Awaiting carbon intensity on flyball.signals.v1", "empty")
            self._body = box()
            with self._body:
                self._chart = chart({})
                with box("plans"):
                    self._none = text("No deferrable job is planned yet", "plan")
                    self._lines = [_line(i) for i in range(MAX_PLANS)]
                    self._more = text(classes="plan")

    def update(self, view: FleetView, now: dict[str, int]) -> None:
        """Patch the chart's options and the sentences."""
        known = len(view.curves) > 0
        show(self._empty, not known)
        show(self._body, known)
        if not known:
            return
        options, plans = carbon_options(view, now, self._prefs)
        patch(self._chart, options, f"Carbon intensity of {len(view.curves)} zones, {len(plans)} planned jobs")
        show(self._none, not plans)
        more = len(view.plans) - len(plans)
        show(self._more, more > 0)
        self._more.set_text(f"and {plural(more, 'planned job')} more")
        for i, (line, name, label) in enumerate(self._lines):
            show(line, i < len(plans))
            if i < len(plans):
                readdress(name, plans[i].subject, workload_link(plans[i].subject))
                label.set_text(_sentence(plans[i], self._prefs))
                line.style(f"--zone: {plans[i].colour}")


def _line(index: int) -> tuple[Element, TextElement, TextElement]:
    line = box("plan")
    with line:
        text(str(index + 1), "lane", "span")
        with box("words", "span"):
            name = anchor("", "#")
            label = text(tag="span")
    line.set_visibility(False)
    return line, name, label


def _sentence(plan: PlanText, prefs: Preferences) -> str:
    if not plan.feasible:
        return f" cannot finish by {prefs.clock(plan.deadline_ns, day=True)}; it runs at once"
    shares = [f"{percent(plan.saving)} CO\u2082e"] if plan.saving > 0 else []
    shares += [f"{percent(plan.price_saving)} of the price of power"] if plan.price_saving > 0 else []
    saves = f"saves {' and '.join(shares) or 'nothing'}"
    runs = f"runs {span(plan.runs_s)} from {prefs.clock(plan.next_ns, day=True)}" if plan.next_ns else "has run"
    return f" {saves}: {runs} in {plan.zone}, due {prefs.clock(plan.deadline_ns, day=True)}"
