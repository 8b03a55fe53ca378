"""The numbers at the head of the page."""

from dataclasses import dataclass

import numpy as np

from flyball_streams.dashboard.nodes import POWER, UTILIZATION, Health
from flyball_streams.dashboard.state import FleetView


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
    """The fleet in a few numbers; ``None`` where nothing was measured."""

    gpu_nodes: int
    gpus: int
    busy: int
    utilization: float | None
    power_w: float | None
    health: dict[Health, int]
    cells: tuple[CellSummary, ...]


def summarise(view: FleetView) -> Summary:
    """Add up the last measurements of all nodes whose inventory is known."""
    placed = [(node, node.inventory) for node in view.nodes.values() if node.inventory is not None]
    tables = [node.table() for node, _ in placed]
    table = np.concatenate(tables) if tables else np.zeros((0, 4), np.float32)
    use, power = table[:, UTILIZATION], table[:, POWER]
    use, power = use[np.isfinite(use)], power[np.isfinite(power)]
    cells: list[CellSummary] = []
    now: dict[str, int] = {}
    for cell in view.cells.values():
        members = [node for node, inventory in placed if inventory.cell == cell.name]
        now[cell.name] = view.now_ns(cell.name)
        loads = [node.cpu for node in members if node.cpu is not None]
        gpus = sum(len(node.inventory.devices) for node in members if node.inventory)
        cpu = sum(loads) / len(loads) if loads else None
        cells.append(CellSummary(cell.name, len(members), gpus, now[cell.name], cpu))
    health: dict[Health, int] = {"failing": 0, "straggling": 0, "anomalous": 0}
    for mark in view.active_marks(now).values():
        health[mark.health] += 1
    return Summary(
        gpu_nodes=sum(1 for _, inventory in placed if inventory.devices),
        gpus=len(table),
        busy=int((use >= 0.05).sum()),
        utilization=float(use.mean()) if len(use) else None,
        power_w=float(power.sum()) if len(power) else None,
        health=health,
        cells=tuple(sorted(cells, key=lambda cell: (-cell.gpus, cell.name))),
    )
