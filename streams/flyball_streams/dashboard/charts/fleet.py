"""The heat map's payload; ``static/flyball.js`` lays it out for the width of the window.

The layout (groups, nodes, devices, workloads) is sent when it changes; the values, in the same order of
devices, about once a second.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flyball_streams.dashboard.nodes import SEVERITY, Mark, Node
from flyball_streams.dashboard.state import FleetView

SILENT_NS = 30_000_000_000


class FleetPayload(NamedTuple):
    """``layout`` changes with the topology; ``values`` has a list per quantity, -1 for unknown.

    ``marks`` are ``[device, severity, text]`` (3 failing, 2 straggling, 1 anomalous); ``silent`` are
    places of nodes that have not reported for half a minute of event time.
    """

    layout: list[dict[str, Any]]
    values: dict[str, list[int]]
    marks: list[list[Any]]
    silent: list[int]


def fleet_payload(view: FleetView) -> FleetPayload:
    """Everything about the devices, grouped by cell and zone."""
    groups: dict[tuple[str, str], list[Node]] = {}
    for node in view.nodes.values():
        if node.inventory is not None and node.inventory.devices:
            groups.setdefault((node.inventory.cell, node.inventory.zone), []).append(node)
    now = {cell.name: view.now_ns(cell.name) for cell in view.cells.values()}
    active = view.active_marks(now)
    layout: list[dict[str, Any]] = []
    tables: list[NDArray[np.float32]] = []
    marks: list[list[Any]] = []
    silent: list[int] = []
    device = place = 0
    for (cell, zone), nodes in sorted(groups.items()):
        members: list[dict[str, Any]] = []
        for node in sorted(nodes, key=lambda n: n.name):
            assert node.inventory is not None
            devices = node.inventory.devices
            members.append({"name": node.name, "devices": [d.index for d in devices], "workloads": node.workloads()})
            tables.append(node.table())
            for row, item in enumerate(devices):
                mark: Mark | None = active.get((node.name, item.id))
                if mark is not None:
                    marks.append([device + row, SEVERITY[mark.health], mark.text])
            if not node.time_ns or now[cell] - node.time_ns > SILENT_NS:
                silent.append(place)
            device += len(devices)
            place += 1
        layout.append({"cell": cell, "zone": zone, "nodes": members})
    table = np.concatenate(tables) if tables else np.zeros((0, 4), np.float32)
    scaled = table * np.array([100, 1, 1, 100], np.float32)
    whole = np.where(np.isfinite(scaled), np.round(scaled), -1).astype(int)
    columns = [[int(v) for v in whole[:, column]] for column in range(whole.shape[1])]
    return FleetPayload(layout, dict(zip(("use", "power", "heat", "memory"), columns, strict=True)), marks, silent)


def fleet_caption(payload: FleetPayload) -> str:
    """The heat map in words, for those who cannot see it."""
    use = [value for value in payload.values["use"] if value >= 0]
    total = len(payload.values["use"])
    counts = [sum(1 for mark in payload.marks if mark[1] == level) for level in (3, 2, 1)]
    mean = f"mean utilisation {sum(use) / len(use):.0f} %" if use else "no measurements yet"
    return f"{total} GPUs, {mean}, {counts[0]} failing, {counts[1]} straggling, {counts[2]} anomalous"
