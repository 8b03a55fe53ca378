"""The fleet as a heat map."""

from typing import Any

import msgspec
from nicegui import ui

from flyball_streams.dashboard.charts.fleet import FleetMap, fleet_caption
from flyball_streams.dashboard.charts.palette import tooltip
from flyball_streams.dashboard.panels.elements import box, chart, describe, head, panel, show, text
from flyball_streams.dashboard.preferences import Preferences

_GLYPHS = {
    "failing": '<rect width="14" height="14" rx="3" fill="#c92a3a"/>'
    '<path d="M4 4l6 6M10 4l-6 6" stroke="#fff" stroke-width="1.6"/>',
    "straggling": '<rect width="14" height="14" rx="3" fill="#f2b84b"/><path d="M7 3.5l3.5 6.5h-7z" fill="#0b0f17"/>',
    "anomalous": '<rect width="14" height="14" rx="3" fill="#d59bff"/><circle cx="7" cy="7" r="3" fill="#0b0f17"/>',
}
_SQUARES = {
    "gpu": "a square is a GPU, a column of squares a node",
    "node": "a square is a node with the mean of its GPUs",
    "pool": "a square is a pool of like nodes with the mean of its GPUs",
}


def _custom(render: str, z: int) -> dict[str, Any]:
    return {
        "type": "custom", "coordinateSystem": "none", ":renderItem": render, "data": [], "animation": False, "z": z,
        "encode": {"tooltip": 0}, "cursor": "pointer",
        "progressive": 0,  # else a large fleet is wiped and painted in pieces at each update
    }  # fmt: skip


class FleetPanel:
    """Squares by cell and zone; a click on one opens its view."""

    def __init__(self, prefs: Preferences) -> None:
        self._topology = -1
        self._sent: FleetMap | None = None
        with panel("fleet", "Fleet"):
            with head("Fleet"):
                self._sub = text(classes="sub")
                box("grow")
                with box("legend"):
                    with box(tag="span"):
                        text("utilisation 0", tag="span")
                        box("ramp")
                        text("100 %", tag="span")
                    for name, glyph in _GLYPHS.items():
                        with box(tag="span"):
                            ui.html(f'<svg viewBox="-1 -1 16 16" aria-hidden="true">{glyph}</svg>', sanitize=False)
                            text(name, tag="span")
            self._empty = text("Awaiting node inventories on flyball.inventory.v1", "empty")
            with box("map").props('role="img"') as self._holder:
                self._chart = chart(
                    {
                        "animation": False,
                        "tooltip": tooltip(prefs, trigger="item", **{":formatter": "flyball.deviceTip"}),
                        "series": [_custom("flyball.renderDevice", 2), _custom("flyball.renderMark", 3)],
                    },
                    "chart chart-fleet",
                )

    def update(self, shown: FleetMap) -> None:
        """Send the new values, and the layout where it changed."""
        show(self._empty, not shown.layout)
        show(self._holder, bool(shown.layout))
        if not shown.layout or shown is self._sent:
            return
        self._sent = shown
        self._sub.set_text(_SQUARES[shown.level])
        news: dict[str, Any] = {"values": shown.values, "marks": shown.marks, "silent": shown.silent}
        if shown.topology != self._topology:
            self._topology = shown.topology
            news |= {"layout": shown.layout, "level": shown.level}
        describe(self._holder, "aria-label", fleet_caption(shown))
        ui.run_javascript(f"flyball.updateFleet({self._chart.id}, {msgspec.json.encode(news).decode()})")
