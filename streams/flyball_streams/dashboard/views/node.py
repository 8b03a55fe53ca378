"""One node."""

from collections.abc import Sequence

from flyball_streams.dashboard.links import gpu_link, workload_link
from flyball_streams.dashboard.panels.decisions import DecisionPanel
from flyball_streams.dashboard.panels.elements import box, head, panel
from flyball_streams.dashboard.panels.incidents import IncidentPanel
from flyball_streams.dashboard.preferences import Preferences
from flyball_streams.dashboard.state.fleet import FleetView
from flyball_streams.dashboard.state.nodes import MEMORY, POWER, TEMPERATURE, UTILIZATION, Mark, Node
from flyball_streams.dashboard.state.summary import SummaryCache
from flyball_streams.dashboard.text import UNKNOWN, percent, quantity
from flyball_streams.dashboard.views.base import (
    Fact,
    FactPanel,
    HistoryPanel,
    Rows,
    Table,
    Title,
    View,
    condition_facts,
    describe_gone,
    node_facts,
)


class NodeView(View):
    """Its inventory, each of its GPUs, measurements over all of them, incidents and decisions."""

    def __init__(self, name: str, prefs: Preferences) -> None:
        self._name = name
        self._prefs = prefs
        self._title = Title("Node", name)
        with box("board two", "main"):
            with box("stack"):
                self._facts = FactPanel("About it", f"No node {name} is known")
            with box("stack"):
                self._history = HistoryPanel(prefs)
                with panel("devices", "GPUs"):
                    head("GPUs")
                    self._devices = Table(
                        ("GPU", "workload", "utilisation", "memory", "power", "temperature", "reported")
                    )
                self._incidents = IncidentPanel(
                    prefs, wanted=lambda report: report.node == name, nothing="Nothing was reported of it"
                )
                self._decisions = DecisionPanel(
                    prefs,
                    wanted=lambda decision: name in decision.named_nodes,
                    nothing="No decision moved work from or to it",
                )

    def update(self, view: FleetView, cache: SummaryCache) -> None:
        """Patch what changed."""
        node = view.nodes.get(self._name)
        describe_gone(self._title, "" if node is not None else "not in the fleet")
        if node is not None:
            load = [] if node.cpu is None else [Fact("CPU", percent(node.cpu))]
            condition = view.conditions.get(self._name)
            state = condition_facts(node.inventory, condition, self._prefs)
            self._facts.update([*state, *load, *node_facts(node, condition, self._prefs)])
            self._devices.update(_devices(node, view, cache))
        self._history.update(node, None)
        self._incidents.update(view, cache.now)
        self._decisions.update(view)


def _devices(node: Node, view: FleetView, cache: SummaryCache) -> Rows:
    active = view.active_marks(cache.now)
    table, work = node.table(), node.workloads()
    rows: list[Sequence[str | tuple[str, str]]] = []
    for row, device in enumerate(node.inventory.devices if node.inventory else ()):
        now = [float(value) for value in table[row]]
        mark = active.get((node.name, device.id))
        rows.append(
            (
                (f"{device.index}", gpu_link(device.id)),
                (work[row], workload_link(work[row])) if work[row] else "free",
                percent(now[UTILIZATION]),
                percent(now[MEMORY]),
                quantity(now[POWER], "W"),
                quantity(now[TEMPERATURE], "Cel"),
                _reported(mark),
            )
        )
    return rows


def _reported(mark: Mark | None) -> str:
    if mark is None:
        return UNKNOWN
    label = mark.text.replace("_", " ")
    return label if label == mark.health else f"{mark.health}: {label}"
