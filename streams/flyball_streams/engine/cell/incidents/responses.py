"""Responses of operators to the incidents of a cell, by kind; read again when the tables change."""

from flyball_contracts.records import Acknowledgement, Label, Readmission, Silence
from flyball_streams.engine.cell.incidents.limits import Kind, strictness
from flyball_streams.engine.cell.incidents.open_incident import OpenIncident
from flyball_streams.engine.fleet_index import FleetIndex


class Responses:
    """Acknowledgements and labels by incident, silences, readmissions by node, and limits that labels have raised.

    ``acknowledged`` is who works on an incident; the name is empty once that was taken back.
    """

    def __init__(self, cell: str, directory: FleetIndex) -> None:
        self.cell = cell
        self.directory = directory
        self.acknowledged: dict[str, str] = {}
        self.labels: dict[str, bool] = {}
        self.silences: list[Silence] = []
        self.readmitted: dict[str, Readmission] = {}
        self.bits: dict[Kind, float] = {}
        self._seen: tuple[int, int] | None = None

    def read(self) -> None:
        """Read the responses again if the tables have changed."""
        known = self.directory.tables.responses
        seen = self.directory.version, len(known)
        if seen == self._seen:
            return
        self._seen = seen
        own = [known[key] for key in sorted(known) if known[key].cell == self.cell]
        self.acknowledged = {r.incident: "" if r.removed else r.by for r in own if isinstance(r, Acknowledgement)}
        labels = [r for r in own if isinstance(r, Label)]
        self.labels = {label.incident: label.true for label in labels}
        self.silences = [r for r in own if isinstance(r, Silence) and not r.removed]
        self.bits = strictness(labels)
        self.readmitted = {r.node: r for r in own if isinstance(r, Readmission)}

    def silence_of(self, incident: OpenIncident, now_ns: int) -> str:
        """Name of the silence that matches an incident, empty for none."""
        for silence in self.silences:
            if silence.holds(now_ns) and silence.matches(
                incident.id, incident.cause, tuple(incident.devices), tuple(incident.nodes), tuple(incident.workloads)
            ):
                return silence.name
        return ""

    def is_silenced(self, node: str, now_ns: int) -> bool:
        """Whether a silence matches all that happens on a node, such as a maintenance window."""
        return any(s.holds(now_ns) and s.matches("", "", (), (node,), ()) for s in self.silences)
