"""State of the fleet, folded from its records: bounded, without a clock, a socket or a browser.

All times are event times from the records. Unknown values are absent.
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from statistics import median_low
from typing import Any

from flyball_contracts.frame import Frame
from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import (
    Account,
    Anomaly,
    AnyDecision,
    Capacity,
    Check,
    DemandTick,
    Forecast,
    Incident,
    Inventory,
    MachineChoice,
    Migrate,
    NodeCondition,
    NodeEvent,
    Outcome,
    Plan,
    PlatformStatus,
    Preempt,
    ProposalTick,
    Record,
    Scale,
    Signal,
    Snapshot,
    WorkloadSpec,
)
from flyball_contracts.records.incidents import worst_first
from flyball_contracts.records.platforms import REPEAT_NS
from flyball_contracts.tables import Tables, supersedes
from flyball_contracts.topics import INVENTORY, SIGNALS, WORKLOADS
from flyball_streams.dashboard.state.accounts import Accounts
from flyball_streams.dashboard.state.bounded import Bounded
from flyball_streams.dashboard.state.demand import Workload
from flyball_streams.dashboard.state.journal import Journal
from flyball_streams.dashboard.state.nodes import SEVERITY, Health, Mark, Node
from flyball_streams.dashboard.state.progress import Progress
from flyball_streams.dashboard.state.reports import Occurrence, Report, of_anomaly, of_event
from flyball_streams.dashboard.state.service import Service

MAX_NODES = 20_000
MAX_WORKLOADS = 1_000
"""More are not shown while those that came first are reported: each has a history, which makes it large."""
MAX_REPORTS = 500
MAX_INCIDENTS = 4_096
ANOMALOUS_NS = 30 * NS_PER_S
MARK_NS = 90 * NS_PER_S
FAILING_NS = 600 * NS_PER_S
SHOWN_NS: dict[Health, int] = {"failing": FAILING_NS, "straggling": MARK_NS, "anomalous": ANOMALOUS_NS}
RATE_S = 10
PLATFORM_NS = 3 * REPEAT_NS
"""An open breaker that was not published for this long no longer counts: its actuator has ended."""


@dataclass(slots=True)
class Cell:
    """Event time of one cell: ``tick_end_ns`` from the engine, ``frames`` per event-time second."""

    name: str
    tick_end_ns: int = 0
    frames: Bounded[int, int] = field(default_factory=lambda: Bounded[int, int](4 * RATE_S))


@dataclass(slots=True)
class Curve:
    """Carbon intensity of a zone: the newest forecast and the last published actual values."""

    zone: str
    forecast: Signal | None = None
    actual: deque[Signal] = field(default_factory=lambda: deque[Signal](maxlen=96))

    def at(self, time_ns: int) -> float | None:
        """Intensity at a time in gCO2e/kWh: the actual value, else the forecast."""
        for signal in (*reversed(self.actual), *([self.forecast] if self.forecast else [])):
            value = signal.at(time_ns)
            if value is not None:
                return value
        return None


class FleetView:
    """Everything that the page shows; :meth:`apply` accepts records and frames in any order."""

    def __init__(self) -> None:
        self.version = 0
        self.applied = 0
        self.undecodable = 0
        self.dead_letters = 0
        self.late = 0
        self.last_error = ""
        self.nodes: Bounded[str, Node] = Bounded(MAX_NODES)
        self.topology = 0
        self.tables = Tables()
        self.places: dict[str, tuple[str, int]] = {}
        self.cells: Bounded[str, Cell] = Bounded(64)
        self.workloads: Bounded[str, Workload] = Bounded(MAX_WORKLOADS)
        self.curves: Bounded[str, Curve] = Bounded(64)
        self.plans: Bounded[str, Plan] = Bounded(256)
        self.marks: Bounded[tuple[str, str], Mark] = Bounded(4_096)
        self.reports: Bounded[str, Report] = Bounded(MAX_REPORTS)
        self.incidents: Bounded[str, Incident] = Bounded(MAX_INCIDENTS)
        self.conditions: Bounded[str, NodeCondition] = Bounded(MAX_INCIDENTS)
        self.platforms: Bounded[tuple[str, str], PlatformStatus] = Bounded(256)
        self.journal = Journal()
        self.accounts = Accounts()
        self.service = Service()
        self.progress: Bounded[tuple[str, int], Progress] = Bounded(4_096)
        self._closed: Bounded[tuple[str, str], int] = Bounded(4_096)
        self._handlers: dict[type[Any], Callable[[Any], None]] = {
            Frame: self._frame,
            Inventory: self._inventory,
            WorkloadSpec: self._spec,
            DemandTick: self._demand,
            Forecast: partial(self._newest, "forecast"),
            Capacity: partial(self._newest, "capacity"),
            MachineChoice: partial(self._newest, "choice"),
            ProposalTick: self._proposals,
            Signal: self._signal,
            Plan: self._plan,
            Anomaly: self._anomaly,
            NodeEvent: self._event,
            Scale: self._decision,
            Migrate: self._decision,
            Preempt: self._decision,
            Check: self._decision,
            Outcome: self.journal.add,
            PlatformStatus: self._platform,
            Account: self._account,
            Incident: self._incident,
            NodeCondition: self._condition,
        }

    def apply(self, item: Record | Frame | Snapshot) -> None:
        """Apply one record or frame; types that the page does not show are ignored."""
        handler = self._handlers.get(type(item))
        if handler is not None:
            handler(item)
            self.applied += 1
            self.version += 1

    def _platform(self, status: PlatformStatus) -> None:
        key = (status.subject, status.actuator)
        known = self.platforms.get(key)
        if known is None or status.time_ns >= known.time_ns:
            self.platforms[key] = status

    def silent_platforms(self, now: dict[str, int]) -> list[PlatformStatus]:
        """Platforms that do not answer an actuator, by name, at the event time ``now`` of each cell."""

        def is_current(one: PlatformStatus) -> bool:
            cells = [
                time_ns for cell, time_ns in now.items() if any(fnmatchcase(cell, p) for p in one.cells.split(","))
            ]
            return max(cells, default=0) - one.time_ns < PLATFORM_NS

        found = (one for one in self.platforms.values() if one.open and is_current(one))
        return sorted(found, key=lambda one: (one.subject, one.actuator))

    def refuse(self, reason: str) -> None:
        """Count a message that could not be read."""
        self.undecodable += 1
        self.last_error = reason
        self.version += 1

    def count_dead_letters(self, count: int, reason: str = "") -> None:
        """Count dead letters; ``reason`` is the newest one's."""
        self.dead_letters += count
        self.last_error = reason or self.last_error
        self.version += 1

    def forget(self, topic: str, key: str) -> None:
        """Apply a tombstone of a topic."""
        self.tables.forget(topic, key)
        if topic == INVENTORY.name:
            self._displace(key)
            self.nodes.pop(key)
            self.topology += 1
        elif topic == WORKLOADS.name:
            self.workloads.pop(key)
        elif topic == SIGNALS.name:
            self.curves.pop(key)
        self.version += 1

    def times(self) -> dict[str, int]:
        """Event time of each cell: the newest closed tick, or a later time that most of its nodes report."""
        times_ns: dict[str, list[int]] = {cell.name: [] for cell in self.cells.values()}
        for node in self.nodes.values():
            if node.time_ns and node.inventory is not None and node.inventory.cell in times_ns:
                times_ns[node.inventory.cell].append(node.time_ns)
        return {
            cell.name: max(cell.tick_end_ns, median_low(times_ns[cell.name]) if times_ns[cell.name] else 0)
            for cell in self.cells.values()
        }

    def frame_rate(self, now: dict[str, int]) -> float:
        """Frames per second of event time, over all cells and the last whole seconds."""
        rate = 0.0
        for cell in self.cells.values():
            last = now.get(cell.name, 0) // NS_PER_S
            counts = [count for second, count in cell.frames.items() if last - RATE_S <= second < last]
            rate += sum(counts) / RATE_S
        return rate

    def place(self, device: str) -> str:
        """A device's node and number, or its id if no inventory lists it."""
        known = self.places.get(device)
        return f"{known[0]} \N{MIDDLE DOT} GPU {known[1]}" if known is not None else device

    def active_marks(self, now: dict[str, int]) -> dict[tuple[str, str], Mark]:
        """Marks of GPUs that are fresh at the event time ``now`` of their cell or have an open critical incident.

        Nodes, ports and GPUs that left the fleet have none.
        """
        fresh: dict[tuple[str, str], Mark] = {}
        for key, mark in self.marks.items():
            node = self.nodes.get(key[0])
            if node is None or node.inventory is None or self.places.get(key[1], ("", 0))[0] != key[0]:
                continue
            age = now.get(node.inventory.cell, mark.time_ns) - mark.time_ns
            if age <= SHOWN_NS[mark.health]:
                fresh[key] = mark
        for incident in self.open_incidents():
            if incident.severity == "critical" and incident.device in self.places:
                key = (self.places[incident.device][0], incident.device)
                known = fresh.get(key)
                if known is None or SEVERITY[known.health] < SEVERITY["failing"]:
                    fresh[key] = Mark("failing", incident.seen_ns, incident.summary)
        return fresh

    def ordered(self, reports: Iterable[Report], now: dict[str, int]) -> list[Report]:
        """Recent reports first, then the most severe, then the newest."""

        def place(report: Report) -> tuple[int, int]:
            fresh = now.get(report.cell, report.time_ns) - report.time_ns <= SHOWN_NS[report.health]
            return -SEVERITY[report.health] if fresh else 0, -report.time_ns

        return sorted(reports, key=place)

    def open_incidents(self) -> list[Incident]:
        """Open incidents, the worst first, silenced ones after the others."""
        return sorted((c for c in self.incidents.values() if c.status == "open"), key=worst_first)

    def _cell(self, name: str) -> Cell:
        return self.cells.ensure(name, lambda: Cell(name))

    def _node(self, name: str) -> Node:
        return self.nodes.ensure(name, lambda: Node(name))

    def _workload(self, name: str) -> Workload:
        known = self.workloads.get(name)
        if known is not None:
            return known
        made = Workload(name, self.tables.spec(name))
        oldest = next(iter(self.workloads)) if len(self.workloads) == self.workloads.limit else None
        kept = self.workloads.get(oldest) if oldest is not None else None
        if kept is not None and kept.seen_ns and not kept.is_gone:
            self.workloads[kept.name] = kept  # the next one to make room may be another
        else:
            self.workloads[name] = made
        return made

    def _frame(self, frame: Frame) -> None:
        node = self._node(frame.node)
        if node.measure(frame) and node.inventory is not None:
            frames = self._cell(node.inventory.cell).frames
            second = frame.time_ns // NS_PER_S
            frames[second] = (frames.get(second) or 0) + 1

    def _inventory(self, inventory: Inventory) -> None:
        if self.tables.apply(inventory):
            node = self._node(inventory.node)
            self._displace(inventory.node)
            node.inventory = inventory
            self.places.update({device.id: (inventory.node, device.index) for device in inventory.devices})
            self._cell(inventory.cell)
            self.topology += 1

    def _displace(self, name: str) -> None:
        node = self.nodes.get(name)
        for device in node.inventory.devices if node and node.inventory else ():
            if self.places.get(device.id, ("", 0))[0] == name:
                del self.places[device.id]

    def _spec(self, spec: WorkloadSpec) -> None:
        if not self.tables.apply(spec):
            return
        if spec.removed:
            self.workloads.pop(spec.workload)
        else:
            self._workload(spec.workload).spec = spec

    def _advance(self, cell: str, time_ns: int) -> None:
        state = self._cell(cell)
        state.tick_end_ns = max(state.tick_end_ns, time_ns)

    def _demand(self, record: DemandTick) -> None:
        progress = self.progress.ensure((record.cell, record.partition), Progress)
        progress.add(record)
        for demand in record.demands:
            workload = self._workload(demand.workload)
            workload.progress = progress
            workload.add(demand, record.source, record.tick)
        for arrivals in record.arrivals:
            workload = self._workload(arrivals.workload)
            workload.progress = progress
            workload.arrive(arrivals, record.source, record.tick)
        self.service.add(record, self.workloads)
        self._tick_closed(record)

    def _newest(self, field: str, record: Forecast | Capacity | MachineChoice) -> None:
        workload = self._workload(record.subject)
        known: Forecast | Capacity | MachineChoice | None = getattr(workload, field)
        if known is None or record.time_ns >= known.time_ns:
            setattr(workload, field, record)

    def _proposals(self, record: ProposalTick) -> None:
        for proposal in record.proposals:
            if proposal.action == "resize" or (proposal.action == "scale" and proposal.replicas is not None):
                self._workload(proposal.workload).propose(proposal, record.tick)
        if record.closes:
            self._tick_closed(record)

    def _tick_closed(self, mark: ProposalTick | DemandTick) -> None:
        """Count each tick once: every partition of the demand topic receives it."""
        key = (mark.cell, mark.source)
        last = self._closed.get(key)
        if last is None or mark.tick.index > last:
            self._closed[key] = mark.tick.index
            self.late += mark.tick.late
        self._advance(mark.cell, mark.tick.end_ns)

    def _signal(self, signal: Signal) -> None:
        if signal.kind != "carbon_intensity" or not signal.p50:
            return
        curve = self.curves.ensure(signal.zone, lambda: Curve(signal.zone))
        if not signal.forecast:
            curve.actual.append(signal)
        elif curve.forecast is None or supersedes(signal, curve.forecast):
            curve.forecast = signal

    def _plan(self, plan: Plan) -> None:
        known = self.plans.get(plan.subject)
        if known is None or plan.time_ns >= known.time_ns:
            self.plans[plan.subject] = plan

    def _anomaly(self, anomaly: Anomaly) -> None:
        report, seen = of_anomaly(anomaly)
        self._add_report(report, seen)
        if anomaly.node:
            self._mark(anomaly.node, anomaly.subject, Mark(report.health, anomaly.time_ns, anomaly.detector))

    def _event(self, event: NodeEvent) -> None:
        if event.severity == "info":
            return
        node = self.nodes.get(event.node)
        report, seen = of_event(event, node.inventory.cell if node and node.inventory else "")
        self._add_report(report, seen)
        if event.device:
            self._mark(event.node, event.device, Mark(report.health, event.time_ns, report.detector))

    def _add_report(self, report: Report, seen: Occurrence) -> None:
        known = self.reports.get(report.id) or report
        known.add(seen)
        known.workload = report.workload or known.workload
        self.reports[known.id] = known

    def _mark(self, node: str, device: str, mark: Mark) -> None:
        known = self.marks.get((node, device))
        if (
            known is None
            or (SEVERITY[mark.health], mark.time_ns) >= (SEVERITY[known.health], known.time_ns)
            or mark.time_ns - known.time_ns > SHOWN_NS[known.health]
        ):
            self.marks[node, device] = mark

    def _decision(self, decision: AnyDecision) -> None:
        self.journal.decide(decision)
        self._advance(decision.cell, decision.time_ns)

    def _incident(self, incident: Incident) -> None:
        known = self.incidents.get(incident.id)
        if known is None or incident.revision >= known.revision:
            self.incidents[incident.id] = incident
        self._advance(incident.cell, incident.time_ns)

    def _condition(self, one: NodeCondition) -> None:
        known = self.conditions.get(one.node)
        if known is None or one.time_ns >= known.time_ns:
            self.conditions[one.node] = one
        self._advance(one.cell, one.time_ns)

    def _account(self, account: Account) -> None:
        self.accounts.add(account)
        self._advance(account.cell, account.time_ns)
