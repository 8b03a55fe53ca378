"""One GPU or MIG instance."""

from flyball_contracts.records import Device
from flyball_streams.dashboard.panels.decisions import DecisionPanel
from flyball_streams.dashboard.panels.elements import box
from flyball_streams.dashboard.panels.incidents import IncidentPanel
from flyball_streams.dashboard.preferences import Preferences
from flyball_streams.dashboard.state.fleet import FleetView
from flyball_streams.dashboard.state.nodes import MEMORY, POWER, TEMPERATURE, UTILIZATION, Node
from flyball_streams.dashboard.state.summary import SummaryCache
from flyball_streams.dashboard.text import percent, quantity
from flyball_streams.dashboard.views.base import (
    Fact,
    FactPanel,
    HistoryPanel,
    Title,
    View,
    describe_gone,
    place_facts,
)


class GpuView(View):
    """Identity, workload, measurements, incidents and decisions of a GPU."""

    def __init__(self, device: str, prefs: Preferences) -> None:
        self._device = device
        self._title = Title("GPU", device)
        with box("board two", "main"):
            with box("stack"):
                self._facts = FactPanel("About it", f"No inventory has a device {device}")
            with box("stack"):
                self._history = HistoryPanel(prefs)
                self._incidents = IncidentPanel(
                    prefs, wanted=lambda report: report.subject == device, nothing="Nothing was reported of it"
                )
                self._decisions = DecisionPanel(
                    prefs,
                    wanted=lambda decision: device in decision.named_devices,
                    nothing="No decision about it so far",
                )

    def update(self, view: FleetView, cache: SummaryCache) -> None:
        """Patch what changed."""
        known = view.places.get(self._device)
        node = view.nodes.get(known[0]) if known else None
        devices = node.inventory.devices if node and node.inventory else ()
        row = next((i for i, device in enumerate(devices) if device.id == self._device), None)
        describe_gone(self._title, "" if row is not None else "not in the fleet")
        if node is not None and row is not None:
            self._title.name.set_text(view.place(self._device))
            self._facts.update(_facts(devices[row], node, row))
        self._history.update(node, row)
        self._incidents.update(view, cache.now)
        self._decisions.update(view)


def _facts(device: Device, node: Node, row: int) -> list[Fact]:
    now = [float(value) for value in node.table()[row]]
    limit = device.power_limit_w
    return [
        *place_facts(node.name, node.workloads()[row]),
        Fact("utilisation", percent(now[UTILIZATION])),
        Fact("memory in use", f"{percent(now[MEMORY])} of {quantity(float(device.memory_bytes), 'By')}"),
        Fact("power", quantity(now[POWER], "W") + (f" of {quantity(limit, 'W')}" if limit else "")),
        Fact("temperature", quantity(now[TEMPERATURE], "Cel")),
        Fact("model", device.model),
        Fact("MIG", device.mig_profile or ("divided" if device.mig_enabled else "")),
        Fact("id", device.id),
        Fact("PCI address", device.pci_address or ""),
        Fact("serial", device.serial or ""),
    ]
