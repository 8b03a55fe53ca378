"""The heat map's payload; ``static/flyball.js`` lays it out for the width of the window.

One square is a GPU; with more than :data:`MAX_SQUARES` GPUs it is a node; with more nodes, a pool of equal nodes.
The layout (groups, squares, names) is sent when it changes; the values, in the same order, about once a second.
"""

from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flyball_contracts.records import Inventory
from flyball_streams.dashboard.links import gpu_link, node_link
from flyball_streams.dashboard.state.fleet import FleetView
from flyball_streams.dashboard.state.nodes import MEMORY, POWER, SEVERITY, TEMPERATURE, UTILIZATION, Node

MAX_SQUARES = 2_500
Level = Literal["gpu", "node", "pool"]


class FleetMap(NamedTuple):
    """``layout`` changes with the topology; ``values`` has a list for each quantity, -1 for unknown.

    A group of the layout has a ``text``, the GPUs of each node as ``columns``, and ``names``, ``work`` and ``links`` of
    each square. Utilisation and memory are means in %, power is the sum in W, temperature the highest in °C. ``marks``
    are ``[square, severity, text, devices]`` (3 failing, 2 straggling, 1 anomalous); ``silent`` are squares of which no
    node has reported for half a minute of event time, or three periods.
    """

    level: Level
    layout: list[dict[str, Any]]
    values: dict[str, list[int]]
    marks: list[list[Any]]
    silent: list[int]
    gpus: int
    mean_use: float | None
    topology: int


class _Square(NamedTuple):
    name: str
    work: str
    link: str
    nodes: list[Node]
    row: int | None  # row of the device, if the square is a device


def fleet_map(view: FleetView, now: dict[str, int]) -> FleetMap:
    """Data of all devices, grouped by cell and zone; ``now`` is the event time of each cell."""
    groups: dict[tuple[str, str], list[tuple[Node, Inventory]]] = {}
    gpus = nodes = 0
    for node in view.nodes.values():
        if node.inventory is not None and node.inventory.devices:
            groups.setdefault((node.inventory.cell, node.inventory.zone), []).append((node, node.inventory))
            gpus, nodes = gpus + len(node.inventory.devices), nodes + 1
    level: Level = "gpu" if gpus <= MAX_SQUARES else "node" if nodes <= MAX_SQUARES else "pool"
    layout: list[dict[str, Any]] = []
    squares: list[_Square] = []
    for (cell, zone), members in sorted(groups.items()):
        ordered = sorted(members, key=lambda member: member[0].name)
        made = list(_squares(ordered, level))
        count = sum(len(inventory.devices) for _, inventory in ordered)
        zoned = f" \N{MIDDLE DOT} {zone}" if zone else ""
        layout.append(
            {
                "text": f"{cell}{zoned} \N{MIDDLE DOT} {len(ordered):,} nodes \N{MIDDLE DOT} {count:,} GPUs",
                "columns": [len(inventory.devices) for _, inventory in ordered],
                "names": [square.name for square in made],
                "work": [square.work for square in made],
                "links": [square.link for square in made],
            }
        )
        squares += made
    values, mean_use = _values(squares)
    silent = [
        place
        for place, square in enumerate(squares)
        if all(node.is_silent(now.get(node.inventory.cell if node.inventory else "", 0)) for node in square.nodes)
    ]
    return FleetMap(level, layout, values, _marks(view, squares, now), silent, gpus, mean_use, view.topology)


def _squares(members: list[tuple[Node, Inventory]], level: Level) -> Iterable[_Square]:
    if level == "pool":
        pools: dict[str, list[Node]] = {}
        for node, inventory in members:
            pools.setdefault(inventory.instance_type or inventory.devices[0].model, []).append(node)
        for name, nodes in sorted(pools.items()):
            yield _Square(name, f"{len(nodes):,} nodes", "", nodes, None)
        return
    for node, inventory in members:
        work = node.workloads()
        if level == "node":
            yield _Square(node.name, _most(work), node_link(node.name), [node], None)
            continue
        for row, device in enumerate(inventory.devices):
            yield _Square(f"{node.name} \N{MIDDLE DOT} GPU {device.index}", work[row], gpu_link(device.id), [node], row)


def _most(work: list[str]) -> str:
    names = [name for name in dict.fromkeys(work) if name]
    more = f" and {len(names) - 2} more" if len(names) > 2 else ""
    return ", ".join(names[:2]) + more


def _values(squares: list[_Square]) -> tuple[dict[str, list[int]], float | None]:
    tables: dict[str, NDArray[np.float32]] = {}
    rows: list[NDArray[np.float32]] = []
    owners: list[int] = []
    for place, square in enumerate(squares):
        for node in square.nodes:
            table = tables.get(node.name)
            if table is None:
                table = tables[node.name] = node.table()
            part = table if square.row is None else table[square.row : square.row + 1]
            rows.append(part)
            owners += [place] * len(part)
    table = np.concatenate(rows) if rows else np.zeros((0, 4), np.float32)
    owner = np.array(owners, int)
    known = np.isfinite(table)
    filled = np.where(known, table, 0.0)
    size = len(squares)
    sums = [np.bincount(owner, filled[:, column], size) for column in range(4)]
    counts = [np.bincount(owner, known[:, column], size) for column in range(4)]
    hottest = np.full(size, -1.0)
    np.maximum.at(hottest, owner, np.where(known, table, -1.0)[:, TEMPERATURE])
    with np.errstate(invalid="ignore", divide="ignore"):
        columns = {
            "use": 100 * sums[UTILIZATION] / counts[UTILIZATION],
            "power": np.where(counts[POWER] > 0, sums[POWER], np.nan),
            "heat": hottest,
            "memory": 100 * sums[MEMORY] / counts[MEMORY],
        }
    whole = {name: np.where(np.isfinite(column), np.rint(column), -1).astype(int) for name, column in columns.items()}
    measured = table[known[:, UTILIZATION], UTILIZATION]
    mean = float(measured.mean()) if len(measured) else None
    return {name: [int(value) for value in column] for name, column in whole.items()}, mean


def _marks(view: FleetView, squares: list[_Square], now: dict[str, int]) -> list[list[Any]]:
    active = view.active_marks(now)
    found: list[list[Any]] = []
    if not active:
        return found
    marked = {node for node, _ in active}
    for place, square in enumerate(squares):
        unwell = [
            active[node.name, device.id]
            for node in square.nodes
            if node.name in marked and node.inventory is not None
            for row, device in enumerate(node.inventory.devices)
            if (square.row is None or row == square.row) and (node.name, device.id) in active
        ]
        if unwell:
            worst = max(unwell, key=lambda mark: SEVERITY[mark.health])
            found.append([place, SEVERITY[worst.health], worst.text, len(unwell)])
    return found


def fleet_caption(shown: FleetMap) -> str:
    """Text alternative of the heat map, for screen readers."""
    counts = [sum(mark[3] for mark in shown.marks if mark[1] == level) for level in (3, 2, 1)]
    mean = "no measurements yet" if shown.mean_use is None else f"mean utilisation {100 * shown.mean_use:.0f} %"
    return f"{shown.gpus} GPUs, {mean}, {counts[0]} failing, {counts[1]} straggling, {counts[2]} anomalous"
