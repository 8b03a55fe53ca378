"""The live page and the views below it, patched about once a second from one shared state."""

import json
from collections.abc import Callable
from pathlib import Path

from fastapi import Request
from fastapi.responses import HTMLResponse
from nicegui import ui

from flyball_streams.dashboard.feed import Feed
from flyball_streams.dashboard.look import THEME_COOKIE, Look, look_of
from flyball_streams.dashboard.panels.capacity import CapacityPanel
from flyball_streams.dashboard.panels.carbon import CarbonPanel
from flyball_streams.dashboard.panels.decisions import DecisionPanel
from flyball_streams.dashboard.panels.demand import DemandPanel
from flyball_streams.dashboard.panels.elements import box
from flyball_streams.dashboard.panels.fleet import FleetPanel
from flyball_streams.dashboard.panels.header import Header, Strip
from flyball_streams.dashboard.panels.incidents import IncidentPanel
from flyball_streams.dashboard.panels.worth import WorthPanel
from flyball_streams.dashboard.state.fleet import FleetView
from flyball_streams.dashboard.state.summary import Glance
from flyball_streams.dashboard.views.base import View
from flyball_streams.dashboard.views.case import CaseView
from flyball_streams.dashboard.views.decision import DecisionView
from flyball_streams.dashboard.views.gpu import GpuView
from flyball_streams.dashboard.views.incident import IncidentView
from flyball_streams.dashboard.views.node import NodeView
from flyball_streams.dashboard.views.workload import WorkloadView

UPDATE_S = 1.0
_STATIC = Path(__file__).parent / "static"
FAVICON = (_STATIC / "governor.svg").read_text(encoding="utf-8")
_VIEWS: dict[str, Callable[[str, Look], View]] = {
    "decisions": DecisionView,
    "gpus": GpuView,
    "nodes": NodeView,
    "workloads": WorkloadView,
    "incidents": CaseView,
    "reports": IncidentView,
}


class Overview(View):
    """What Flyball is worth, then demand with decisions, the fleet, carbon, incidents and capacity."""

    def __init__(self, look: Look) -> None:
        self._worth = WorthPanel(look)
        self._strip = Strip()
        with box("board overview", "main"):
            self._demand = DemandPanel(look)
            self._decisions = DecisionPanel(look)
            self._fleet = FleetPanel(look)
            self._carbon = CarbonPanel(look)
            self._incidents = IncidentPanel(look, correlated=True)
            self._capacity = CapacityPanel()

    def update(self, view: FleetView, glance: Glance) -> None:
        """Patch what changed."""
        self._worth.update(view, glance.summary)
        self._strip.update(view, glance.summary)
        self._demand.update(view)
        self._decisions.update(view)
        self._fleet.update(glance.map)
        self._carbon.update(view, glance.now)
        self._incidents.update(view, glance.now)
        self._capacity.update(view)


def add_pages(feed: Feed, mode: str) -> None:
    """Register the overview at ``/`` and the views below it; ``mode`` is the actuator's until an outcome has one."""
    style = (_STATIC / "flyball.css").read_text(encoding="utf-8")
    script = (_STATIC / "flyball.js").read_text(encoding="utf-8")
    welcome = (_STATIC / "welcome.html").read_text(encoding="utf-8")
    glance = Glance(feed.view)

    def serve(request: Request, make: Callable[[Look], View]) -> HTMLResponse | None:
        if THEME_COOKIE not in request.cookies and "look" not in request.query_params:
            return HTMLResponse(welcome, headers={"Cache-Control": "no-store"})
        look = look_of(request.cookies)
        ui.dark_mode(look.palette.name == "dark")
        settings = json.dumps(look.settings())
        ui.add_head_html(
            f"<style>{look.variables()}{style}</style><script>window.flyballLook = {settings};{script}</script>"
        )
        header = Header(mode, look)
        shown = make(look)

        def update() -> None:
            with feed.lock:
                glance.refresh()
                header.update(feed.view, glance.summary, feed.link)
                shown.update(feed.view, glance)

        ui.timer(UPDATE_S, update)
        return None

    @ui.page("/", title="Flyball", dark=None, favicon=FAVICON)
    def overview(request: Request) -> HTMLResponse | None:  # pyright: ignore[reportUnusedFunction]
        return serve(request, Overview)

    for folder, make in _VIEWS.items():
        _add_view(folder, make, serve)


def _add_view(
    folder: str,
    make: Callable[[str, Look], View],
    serve: Callable[[Request, Callable[[Look], View]], HTMLResponse | None],
) -> None:
    @ui.page(f"/{folder}/{{name:path}}", title="Flyball", dark=None, favicon=FAVICON)
    def view(request: Request, name: str) -> HTMLResponse | None:  # pyright: ignore[reportUnusedFunction]
        return serve(request, lambda look: make(name, look))
