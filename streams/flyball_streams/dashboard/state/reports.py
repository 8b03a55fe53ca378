"""Reports of anomalies and events, grouped by subject and detector."""

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from flyball_contracts.ids import record_id
from flyball_contracts.records import Anomaly, Evidence, NodeEvent
from flyball_streams.dashboard.state.nodes import Health

MAX_SEEN = 240


class Occurrence(NamedTuple):
    """One occurrence of a report."""

    time_ns: int
    score: float
    evidence: tuple[Evidence, ...] = ()
    text: str = ""


_NEVER = Occurrence(0, 0.0)


@dataclass(slots=True)
class Report:
    """An anomaly or event of one subject, with all its occurrences; ``seen`` has the last ones."""

    subject: str
    node: str
    cell: str
    detector: str
    health: Health
    workload: str = ""
    first_ns: int = 0
    count: int = 0
    latest: Occurrence = _NEVER
    seen: deque[Occurrence] = field(default_factory=lambda: deque[Occurrence](maxlen=MAX_SEEN))

    @property
    def id(self) -> str:
        """Id for links; the same after a restart of the page."""
        return report_id(self.subject, self.detector)

    @property
    def time_ns(self) -> int:
        """Time of the last report."""
        return self.latest.time_ns

    def add(self, seen: Occurrence) -> None:
        """Add an occurrence if it is new; ``latest`` is the newest one."""
        if any(known.time_ns == seen.time_ns for known in self.seen):
            return
        self.count += 1
        self.first_ns = min(self.first_ns, seen.time_ns) if self.first_ns else seen.time_ns
        self.seen.append(seen)
        if seen.time_ns >= self.latest.time_ns:
            self.latest = seen


def report_id(subject: str, detector: str) -> str:
    """Id of a report for links."""
    return record_id("Incident", subject, detector)[:16]


def of_anomaly(anomaly: Anomaly) -> tuple[Report, Occurrence]:
    """The report of an anomaly, and this occurrence."""
    health = health_of(anomaly.detector)
    report = Report(anomaly.subject, anomaly.node, anomaly.cell, anomaly.detector, health, anomaly.workload)
    return report, Occurrence(anomaly.time_ns, anomaly.score, anomaly.evidence)


def of_event(event: NodeEvent, cell: str) -> tuple[Report, Occurrence]:
    """The report of a warning or critical event, and this occurrence."""
    critical = event.severity == "critical"
    name = event.kind.replace("_", " ")
    code = f" {event.code}" if event.code is not None else ""
    detector = f"{name.upper() if event.kind in ('xid', 'ecc') else name}{code}"
    health: Health = "failing" if critical else "anomalous"
    report = Report(event.device or event.node, event.node, cell, detector, health)
    return report, Occurrence(event.time_ns, 1.0 if critical else 0.5, text=event.message)


def health_of(detector: str) -> Health:
    """Health state by a detector's name: peers detect stragglers, faults failures."""
    name = detector.lower()
    if any(word in name for word in ("peer", "straggl", "slow")):
        return "straggling"
    if any(word in name for word in ("fail", "fault", "xid", "ecc", "lost")):
        return "failing"
    return "anomalous"
