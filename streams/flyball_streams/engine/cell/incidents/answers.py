"""What people said of a cell's incidents, by kind, read anew when the tables change."""

from flyball_contracts.records import Acknowledgement, Label, Readmission, Silence
from flyball_streams.engine.cell.incidents.case import Case
from flyball_streams.engine.cell.incidents.limits import Kind, strictness
from flyball_streams.engine.known import Known


class Answers:
    """Acknowledgements and labels by incident, silences, readmissions by node, and what labels make of limits."""

    def __init__(self, cell: str, directory: Known) -> None:
        self.cell = cell
        self.directory = directory
        self.acknowledged: dict[str, str] = {}
        self.labels: dict[str, bool] = {}
        self.silences: list[Silence] = []
        self.readmitted: dict[str, Readmission] = {}
        self.bits: dict[Kind, float] = {}
        self._seen: tuple[int, int] | None = None

    def read(self) -> None:
        """Take note of what is new."""
        known = self.directory.tables.responses
        seen = self.directory.version, len(known)
        if seen == self._seen:
            return
        self._seen = seen
        mine = [known[key] for key in sorted(known) if known[key].cell == self.cell]
        self.acknowledged = {r.incident: r.by for r in mine if isinstance(r, Acknowledgement) and not r.removed}
        labels = [r for r in mine if isinstance(r, Label)]
        self.labels = {label.incident: label.true for label in labels}
        self.silences = [r for r in mine if isinstance(r, Silence) and not r.removed]
        self.bits = strictness(labels)
        self.readmitted = {r.node: r for r in mine if isinstance(r, Readmission)}

    def silence_of(self, case: Case, now_ns: int) -> str:
        """Name of the silence that an incident falls under, empty for none."""
        for silence in self.silences:
            if silence.holds(now_ns) and silence.matches(
                case.id, case.cause, tuple(case.devices), tuple(case.nodes), tuple(case.workloads)
            ):
                return silence.name
        return ""
