"""What the records say about the fleet: a bounded state without a clock, a socket or a browser.

Every time here is event time, read from the records. What is not known yet is simply absent.
"""

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median_low
from typing import Any

from flyball_contracts.frame import Frame
from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import (
    Anomaly,
    AnyDecision,
    Capacity,
    DemandTick,
    Evidence,
    Forecast,
    Inventory,
    Migrate,
    NodeEvent,
    Outcome,
    Plan,
    Preempt,
    ProposalTick,
    Record,
    Scale,
    Signal,
    Snapshot,
    WorkloadSpec,
)
from flyball_streams.dashboard.bounded import Bounded
from flyball_streams.dashboard.demand import Workload
from flyball_streams.dashboard.nodes import SEVERITY, Health, Mark, Node

MAX_NODES = 20_000
MAX_WORKLOADS = 1_000
MAX_DECISIONS = 200
ANOMALOUS_NS = 30 * NS_PER_S
MARK_NS = 90 * NS_PER_S
FAILING_NS = 600 * NS_PER_S
SHOWN_NS: dict[Health, int] = {"failing": FAILING_NS, "straggling": MARK_NS, "anomalous": ANOMALOUS_NS}
RATE_S = 10


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


@dataclass(slots=True)
class Finding:
    """An anomaly or an event, once for each subject and detector; ``count`` says how often it came."""

    subject: str
    node: str
    cell: str
    time_ns: int
    detector: str
    score: float
    health: Health
    workload: str = ""
    evidence: tuple[Evidence, ...] = ()
    text: str = ""
    count: int = 1


class FleetView:
    """All that the page shows; :meth:`apply` takes records and frames in any order."""

    def __init__(self) -> None:
        self.version = 0
        self.applied = 0
        self.undecodable = 0
        self.dead_letters = 0
        self.late = 0
        self.last_error = ""
        self.mode: str | None = None
        self.kinds: Counter[str] = Counter()
        self.statuses: Counter[str] = Counter()
        self.nodes: Bounded[str, Node] = Bounded(MAX_NODES)
        self.topology = 0
        self.cells: Bounded[str, Cell] = Bounded(64)
        self.workloads: Bounded[str, Workload] = Bounded(MAX_WORKLOADS)
        self.curves: Bounded[str, Curve] = Bounded(64)
        self.plans: Bounded[str, Plan] = Bounded(256)
        self.marks: Bounded[tuple[str, str], Mark] = Bounded(4_096)
        self.findings: Bounded[tuple[str, str], Finding] = Bounded(100)
        self.decisions: Bounded[str, AnyDecision] = Bounded(MAX_DECISIONS)
        self.outcomes: Bounded[str, Outcome] = Bounded(2 * MAX_DECISIONS)
        self._closed: Bounded[tuple[str, str], int] = Bounded(4_096)
        self._handlers: dict[type[Any], Callable[[Any], None]] = {
            Frame: self._frame,
            Inventory: self._inventory,
            WorkloadSpec: self._spec,
            DemandTick: self._demand,
            Forecast: self._forecast,
            Capacity: self._capacity,
            ProposalTick: self._proposals,
            Signal: self._signal,
            Plan: self._plan,
            Anomaly: self._anomaly,
            NodeEvent: self._event,
            Scale: self._decision,
            Migrate: self._decision,
            Preempt: self._decision,
            Outcome: self._outcome,
        }

    def apply(self, item: Record | Frame | Snapshot) -> None:
        """Take one record or frame; one that says nothing about the page is ignored."""
        handler = self._handlers.get(type(item))
        if handler is not None:
            handler(item)
            self.applied += 1
            self.version += 1

    def refuse(self, reason: str) -> None:
        """Count a message that could not be read."""
        self.undecodable += 1
        self.last_error = reason
        self.version += 1

    def bury(self, count: int, reason: str = "") -> None:
        """Count dead letters; ``reason`` is the newest one's."""
        self.dead_letters += count
        self.last_error = reason or self.last_error
        self.version += 1

    def forget(self, kind: str, key: str) -> None:
        """Drop what a tombstone names: ``kind`` is the key of its topic, node or workload."""
        if kind == "node":
            self.nodes.pop(key)
            self.topology += 1
        elif kind == "workload":
            self.workloads.pop(key)
        self.version += 1

    def now_ns(self, cell: str) -> int:
        """Event time of a cell: the newest closed tick, or what most nodes say if that is later."""
        times = [n.time_ns for n in self.nodes.values() if n.time_ns and n.inventory and n.inventory.cell == cell]
        known = self.cells.get(cell)
        return max(known.tick_end_ns if known else 0, median_low(times) if times else 0)

    def frame_rate(self) -> float:
        """Frames per second of event time, over all cells and the last whole seconds."""
        rate = 0.0
        for cell in self.cells.values():
            last = self.now_ns(cell.name) // NS_PER_S
            counts = [count for second, count in cell.frames.items() if last - RATE_S <= second < last]
            rate += sum(counts) / RATE_S
        return rate

    def active_marks(self, now: dict[str, int]) -> dict[tuple[str, str], Mark]:
        """Marks that are fresh at the event time ``now`` of their node's cell."""
        fresh: dict[tuple[str, str], Mark] = {}
        for key, mark in self.marks.items():
            node = self.nodes.get(key[0])
            cell = node.inventory.cell if node and node.inventory else ""
            age = now.get(cell, mark.time_ns) - mark.time_ns
            if age <= SHOWN_NS[mark.health]:
                fresh[key] = mark
        return fresh

    def _cell(self, name: str) -> Cell:
        cell = self.cells.get(name)
        if cell is None:
            cell = self.cells[name] = Cell(name)
        return cell

    def _node(self, name: str) -> Node:
        node = self.nodes.get(name)
        if node is None:
            node = self.nodes[name] = Node(name)
        return node

    def _workload(self, name: str) -> Workload:
        workload = self.workloads.get(name)
        if workload is None:
            workload = self.workloads[name] = Workload(name)
        return workload

    def _frame(self, frame: Frame) -> None:
        node = self._node(frame.node)
        if node.measure(frame) and node.inventory is not None:
            frames = self._cell(node.inventory.cell).frames
            second = frame.time_ns // NS_PER_S
            frames[second] = (frames.get(second) or 0) + 1

    def _inventory(self, inventory: Inventory) -> None:
        node = self._node(inventory.node)
        if node.inventory is None or inventory.time_ns >= node.inventory.time_ns:
            node.inventory = inventory
            self._cell(inventory.cell)
            self.topology += 1

    def _spec(self, spec: WorkloadSpec) -> None:
        if spec.removed:
            self.workloads.pop(spec.workload)
        else:
            self._workload(spec.workload).spec = spec

    def _advance(self, cell: str, time_ns: int) -> None:
        state = self._cell(cell)
        state.tick_end_ns = max(state.tick_end_ns, time_ns)

    def _demand(self, said: DemandTick) -> None:
        for demand in said.demands:
            self._workload(demand.workload).add(demand, said.source, said.tick)
        for arrivals in said.arrivals:
            self._workload(arrivals.workload).arrive(arrivals, said.source, said.tick)
        self._tick_closed(said)

    def _forecast(self, forecast: Forecast) -> None:
        workload = self._workload(forecast.subject)
        if workload.forecast is None or forecast.time_ns >= workload.forecast.time_ns:
            workload.forecast = forecast

    def _capacity(self, capacity: Capacity) -> None:
        workload = self._workload(capacity.subject)
        if workload.capacity is None or capacity.time_ns >= workload.capacity.time_ns:
            workload.capacity = capacity

    def _proposals(self, said: ProposalTick) -> None:
        for proposal in said.proposals:
            if proposal.wish in ("resize", "choose") or (proposal.wish == "scale" and proposal.replicas is not None):
                self._workload(proposal.workload).wish(proposal, said.tick)
        if said.closes:
            self._tick_closed(said)

    def _tick_closed(self, mark: ProposalTick | DemandTick) -> None:
        """Every partition of the demand topic hears of a tick, so each is counted once."""
        key = (mark.cell, mark.source)
        last = self._closed.get(key)
        if last is None or mark.tick.index > last:
            self._closed[key] = mark.tick.index
            self.late += mark.tick.late
        self._advance(mark.cell, mark.tick.end_ns)

    def _signal(self, signal: Signal) -> None:
        if signal.kind != "carbon_intensity" or not signal.p50:
            return
        curve = self.curves.get(signal.zone)
        if curve is None:
            curve = self.curves[signal.zone] = Curve(signal.zone)
        if not signal.forecast:
            curve.actual.append(signal)
        elif curve.forecast is None or signal.published_ns >= curve.forecast.published_ns:
            curve.forecast = signal

    def _plan(self, plan: Plan) -> None:
        known = self.plans.get(plan.subject)
        if known is None or plan.time_ns >= known.time_ns:
            self.plans[plan.subject] = plan

    def _anomaly(self, anomaly: Anomaly) -> None:
        health = health_of(anomaly.detector)
        self._find(
            Finding(
                anomaly.subject, anomaly.node, anomaly.cell, anomaly.time_ns, anomaly.detector,
                anomaly.score, health, anomaly.workload, anomaly.evidence,
            )
        )  # fmt: skip
        if anomaly.node:
            self._mark(anomaly.node, anomaly.subject, Mark(health, anomaly.time_ns, anomaly.detector))

    def _event(self, event: NodeEvent) -> None:
        if event.severity == "info":
            return
        critical = event.severity == "critical"
        health: Health = "failing" if critical else "anomalous"
        name = event.kind.replace("_", " ")
        code = f" {event.code}" if event.code is not None else ""
        detector = f"{name.upper() if event.kind in ('xid', 'ecc') else name}{code}"
        node = self.nodes.get(event.node)
        cell = node.inventory.cell if node and node.inventory else ""
        subject = event.device or event.node
        score = 1.0 if critical else 0.5
        self._find(Finding(subject, event.node, cell, event.time_ns, detector, score, health, text=event.message))
        if event.device:
            self._mark(event.node, event.device, Mark(health, event.time_ns, detector))

    def _find(self, finding: Finding) -> None:
        key = (finding.subject, finding.detector)
        known = self.findings.get(key)
        if known is not None and known.time_ns > finding.time_ns:
            known.count += 1
            return
        if known is not None:
            finding.count = known.count + 1
        self.findings[key] = finding

    def _mark(self, node: str, device: str, mark: Mark) -> None:
        known = self.marks.get((node, device))
        if (
            known is None
            or (SEVERITY[mark.health], mark.time_ns) >= (SEVERITY[known.health], known.time_ns)
            or mark.time_ns - known.time_ns > MARK_NS
        ):
            self.marks[node, device] = mark

    def _decision(self, decision: AnyDecision) -> None:
        if decision.id not in self.decisions:  # a replayed decision is the same decision
            self.kinds[type(decision).__name__] += 1
            self.decisions[decision.id] = decision
        self._advance(decision.cell, decision.time_ns)

    def _outcome(self, outcome: Outcome) -> None:
        known = self.outcomes.get(outcome.decision)
        if known is not None and (outcome.status == "accepted" or outcome.id == known.id):
            return  # a replayed outcome, or the beginning after the end
        self.mode = outcome.mode
        self.statuses[outcome.status] += 1
        self.outcomes[outcome.decision] = outcome


def health_of(detector: str) -> Health:
    """What a detector's name says about the device: peers point at stragglers, faults at failures."""
    name = detector.lower()
    if any(word in name for word in ("peer", "straggl", "slow")):
        return "straggling"
    if any(word in name for word in ("fail", "fault", "xid", "ecc", "lost")):
        return "failing"
    return "anomalous"
