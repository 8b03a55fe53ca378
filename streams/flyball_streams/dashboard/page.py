"""The live page and the views below it, patched about once a second from one shared state."""

import json
from collections.abc import Callable
from pathlib import Path

from fastapi import Request
from fastapi.responses import HTMLResponse
from nicegui import ui

from flyball_streams.dashboard.feed import Feed
from flyball_streams.dashboard.panels.capacity import CapacityPanel
from flyball_streams.dashboard.panels.carbon import CarbonPanel
from flyball_streams.dashboard.panels.decisions import DecisionPanel
from flyball_streams.dashboard.panels.demand import DemandPanel
from flyball_streams.dashboard.panels.elements import box
from flyball_streams.dashboard.panels.fleet import FleetPanel
from flyball_streams.dashboard.panels.header import Header, Strip
from flyball_streams.dashboard.panels.incidents import IncidentPanel
from flyball_streams.dashboard.panels.worth import WorthPanel
from flyball_streams.dashboard.preferences import THEME_COOKIE, Preferences, preferences_of
from flyball_streams.dashboard.state.fleet import FleetView
from flyball_streams.dashboard.state.summary import SummaryCache
from flyball_streams.dashboard.views.base import View
from flyball_streams.dashboard.views.decision import DecisionView
from flyball_streams.dashboard.views.gpu import GpuView
from flyball_streams.dashboard.views.incident import IncidentView
from flyball_streams.dashboard.views.node import NodeView
from flyball_streams.dashboard.views.report import ReportView
from flyball_streams.dashboard.views.workload import WorkloadView

UPDATE_S = 1.0
_STATIC = Path(__file__).parent / "static"
FAVICON = (_STATIC / "governor.svg").read_text(encoding="utf-8")
_VIEWS: dict[str, Callable[[str, Preferences], View]] = {
    "decisions": DecisionView,
    "gpus": GpuView,
    "nodes": NodeView,
    "workloads": WorkloadView,
    "incidents": IncidentView,
    "reports": ReportView,
}


class Overview(View):
    """Benefit of Flyball, then demand with decisions, the fleet, carbon, incidents and capacity."""

    def __init__(self, prefs: Preferences) -> None:
        self._worth = WorthPanel(prefs)
        self._strip = Strip()
        with box("board overview", "main"):
            self._demand = DemandPanel(prefs)
            self._decisions = DecisionPanel(prefs)
            self._fleet = FleetPanel(prefs)
            self._carbon = CarbonPanel(prefs)
            self._incidents = IncidentPanel(prefs, correlated=True)
            self._capacity = CapacityPanel()

    def update(self, view: FleetView, cache: SummaryCache) -> None:
        """Patch what changed."""
        self._worth.update(view, cache.summary)
        self._strip.update(view, cache.summary)
        self._demand.update(view)
        self._decisions.update(view)
        self._fleet.update(cache.map)
        self._carbon.update(view, cache.now)
        self._incidents.update(view, cache.now)
        self._capacity.update(view)


def add_pages(feed: Feed, mode: str) -> None:
    """Register the overview at ``/`` and the views below it.

    ``mode`` is the actuator's until an outcome reports one.
    """
    style = (_STATIC / "flyball.css").read_text(encoding="utf-8")
    script = (_STATIC / "flyball.js").read_text(encoding="utf-8")
    welcome = (_STATIC / "welcome.html").read_text(encoding="utf-8")
    cache = SummaryCache(feed.view)

    def serve(request: Request, make: Callable[[Preferences], View]) -> HTMLResponse | None:
        if THEME_COOKIE not in request.cookies and "look" not in request.query_params:
            return HTMLResponse(welcome, headers={"Cache-Control": "no-store"})
        prefs = preferences_of(request.cookies)
        ui.dark_mode(prefs.palette.name == "dark")
        settings = json.dumps(prefs.settings())
        ui.add_head_html(
            f"<style>{prefs.variables()}{style}</style>\n<script>window.flyballLook = {settings};{script}</script>"
        )
        header = Header(mode, prefs)
        shown = make(prefs)

        def update() -> None:
            with feed.lock:
                cache.refresh()
                header.update(feed.view, cache.summary, feed.link)
                shown.update(feed.view, cache)

        ui.timer(UPDATE_S, update)
        return None

    @ui.page("/", title="Flyball", dark=None, favicon=FAVICON)
    def overview(request: Request) -> HTMLResponse | None:  # pyright: ignore[reportUnusedFunction]
        return serve(request, Overview)

    for folder, make in _VIEWS.items():
        _add_view(folder, make, serve)


def _add_view(
    folder: str,
    make: Callable[[str, Preferences], View],
    serve: Callable[[Request, Callable[[Preferences], View]], HTMLResponse | None],
) -> None:
    @ui.page(f"/{folder}/{{name:path}}", title="Flyball", dark=None, favicon=FAVICON)
    def view(request: Request, name: str) -> HTMLResponse | None:  # pyright: ignore[reportUnusedFunction]
        return serve(request, lambda prefs: make(name, prefs))
