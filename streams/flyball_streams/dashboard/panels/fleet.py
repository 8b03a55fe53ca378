"""The fleet as a heat map."""

from typing import Any

import msgspec
from nicegui import ui

from flyball_streams.dashboard.charts.fleet import fleet_caption, fleet_payload
from flyball_streams.dashboard.charts.palette import TOOLTIP
from flyball_streams.dashboard.panels.elements import box, describe, head, panel, show, text
from flyball_streams.dashboard.state import FleetView

_GLYPHS = {
    "failing": '<rect width="14" height="14" rx="3" fill="#c92a3a" stroke="#ff6b6b"/>'
    '<path d="M4 4l6 6M10 4l-6 6" stroke="#fff" stroke-width="1.6"/>',
    "straggling": '<rect width="14" height="14" rx="3" fill="#f2b84b"/><path d="M7 3.5l3.5 6.5h-7z" fill="#0b0f17"/>',
    "anomalous": '<rect width="14" height="14" rx="3" fill="#d59bff"/><circle cx="7" cy="7" r="3" fill="#0b0f17"/>',
}


def _custom(render: str, z: int) -> dict[str, Any]:
    return {
        "type": "custom", "coordinateSystem": "none", ":renderItem": render, "data": [], "animation": False, "z": z,
        "encode": {"tooltip": 0},
        "progressive": 0,  # else a large fleet is wiped and painted in pieces at each update
    }  # fmt: skip


class FleetPanel:
    """One square for each GPU: a column of squares is a node, a block is a zone of a cell."""

    def __init__(self) -> None:
        self._topology = -1
        with panel("fleet", "Fleet"):
            with head("Fleet"):
                text("a column of squares is a node", "sub")
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
            self._holder = box("map").props('role="img"')
            with self._holder:
                self._chart = ui.echart(
                    {
                        "animation": False,
                        "tooltip": {**TOOLTIP, "trigger": "item", ":formatter": "flyball.deviceTip"},
                        "series": [_custom("flyball.renderDevice", 2), _custom("flyball.renderMark", 3)],
                    }
                ).classes("chart chart-fleet")

    def update(self, view: FleetView) -> None:
        """Send the new values, and the layout where it changed."""
        payload = fleet_payload(view)
        show(self._empty, not payload.layout)
        show(self._holder, bool(payload.layout))
        if not payload.layout:
            return
        news: dict[str, Any] = {"values": payload.values, "marks": payload.marks, "silent": payload.silent}
        if view.topology != self._topology:
            self._topology = view.topology
            news["layout"] = [{**group, "text": _label(group)} for group in payload.layout]
        describe(self._holder, "aria-label", fleet_caption(payload))
        ui.run_javascript(f"flyball.updateFleet({self._chart.id}, {msgspec.json.encode(news).decode()})")


def _label(group: dict[str, Any]) -> str:
    gpus = sum(len(node["devices"]) for node in group["nodes"])
    zone = f" \N{MIDDLE DOT} {group['zone']}" if group["zone"] else ""
    return f"{group['cell']}{zone} \N{MIDDLE DOT} {gpus:,} GPUs"
