"""Summary of the fleet, computed once for all readers of the page."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from flyball_streams.dashboard.charts.fleet import FleetMap, fleet_map
from flyball_streams.dashboard.state.fleet import FleetView
from flyball_streams.dashboard.state.nodes import POWER, UTILIZATION, Health

_FRESH_S = 0.5


@dataclass(frozen=True, slots=True)
class CellSummary:
    """One cell: its size and its event time."""

    name: str
    nodes: int
    gpus: int
    now_ns: int
    cpu: float | None


@dataclass(frozen=True, slots=True)
class Summary:
    """The fleet in a few numbers; ``None`` if nothing was measured or reported.

    ``usd_per_hour`` is the cost of the machines with a price, ``priced`` their number. ``carbon_g_per_hour`` is the
    emission of the measured power where the zone's intensity is known.
    """

    gpu_nodes: int
    gpus: int
    busy: int
    utilization: float | None
    power_w: float | None
    health: dict[Health, int]
    cells: tuple[CellSummary, ...]
    usd_per_hour: float | None
    priced: int
    carbon_g_per_hour: float | None
    frame_rate: float


def summarise(view: FleetView, now: dict[str, int]) -> Summary:
    """Sum the measurements of all nodes that report and whose inventory is known.

    ``now`` is the event time of each cell. Machines that are silent count with their GPUs and price, but not with what
    they measured last.
    """
    placed = [(node, node.inventory) for node in view.nodes.values() if node.inventory is not None]
    silent = [node.is_silent(now.get(inventory.cell, 0)) for node, inventory in placed]
    tables = [
        np.full_like(node.table(), np.nan) if still else node.table()
        for (node, _), still in zip(placed, silent, strict=True)
    ]
    table = np.concatenate(tables) if tables else np.zeros((0, 4), np.float32)
    use, power = table[:, UTILIZATION], table[:, POWER]
    use, power = use[np.isfinite(use)], power[np.isfinite(power)]
    loads: dict[str, list[float]] = {name: [] for name in now}
    sizes: dict[str, list[int]] = {name: [] for name in now}
    watts: dict[tuple[str, str], float] = {}
    for (node, inventory), measured, still in zip(placed, tables, silent, strict=True):
        sizes.setdefault(inventory.cell, []).append(len(inventory.devices))
        if node.cpu is not None and not still:
            loads.setdefault(inventory.cell, []).append(node.cpu)
        if len(measured) and not still:
            key = (inventory.cell, inventory.zone)
            watts[key] = watts.get(key, 0.0) + float(np.nansum(measured[:, POWER]))
    cells = [
        CellSummary(
            name, len(sizes[name]), sum(sizes[name]), at, sum(loads[name]) / len(loads[name]) if loads[name] else None
        )
        for name, at in now.items()
    ]
    health: dict[Health, int] = {"failing": 0, "straggling": 0, "anomalous": 0}
    for mark in view.active_marks(now).values():
        health[mark.health] += 1
    prices = [inventory.price_usd_per_hour for _, inventory in placed if inventory.price_usd_per_hour is not None]
    return Summary(
        gpu_nodes=sum(1 for _, inventory in placed if inventory.devices),
        gpus=len(table),
        busy=int((use >= 0.05).sum()),
        utilization=float(use.mean()) if len(use) else None,
        power_w=float(power.sum()) if len(power) else None,
        health=health,
        cells=tuple(sorted(cells, key=lambda cell: (-cell.gpus, cell.name))),
        usd_per_hour=sum(prices) if prices else None,
        priced=len(prices),
        carbon_g_per_hour=_emission(view, watts, now),
        frame_rate=view.frame_rate(now),
    )


def _emission(view: FleetView, watts: dict[tuple[str, str], float], now: dict[str, int]) -> float | None:
    rates: list[float] = []
    for (cell, zone), power_w in watts.items():
        curve = view.curves.get(zone)
        intensity = curve.at(now.get(cell, 0)) if curve is not None else None
        if intensity is not None:
            rates.append(intensity * power_w / 1000)
    return sum(rates) if rates else None


class SummaryCache:
    """The summary and heat map that all readers share, refreshed at most twice a second; needs the feed's lock."""

    def __init__(self, view: FleetView, clock: Callable[[], float] = time.monotonic) -> None:
        self.view = view
        self.now: dict[str, int] = {}
        self.summary = summarise(view, {})
        self.map: FleetMap = fleet_map(view, {})
        self._clock = clock
        self._version = -1
        self._made = float("-inf")

    def refresh(self) -> None:
        """Compute it again if the state has changed and the last summary is old enough."""
        if self._version == self.view.version or self._clock() - self._made < _FRESH_S:
            return
        self._version, self._made = self.view.version, self._clock()
        self.now = self.view.times()
        self.summary = summarise(self.view, self.now)
        self.map = fleet_map(self.view, self.now)
