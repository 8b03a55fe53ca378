"""Opens, merges, publishes and ends the incidents of one cell, tick by tick."""

from collections.abc import Iterable, Iterator

import msgspec
from msgspec.structs import replace

from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import (
    AnyDecision,
    Check,
    Incident,
    IncidentAction,
    Migrate,
    NodeCondition,
    Outcome,
    Preempt,
    Proposal,
    Scale,
    Symptom,
    Tick,
)
from flyball_streams.engine.cell.actions.migrate import FAILING
from flyball_streams.engine.cell.incidents.correlate import Correlation
from flyball_streams.engine.cell.incidents.halted_gangs import HANG, moves_off, restarts
from flyball_streams.engine.cell.incidents.interventions import VOID, Interventions
from flyball_streams.engine.cell.incidents.limits import passes
from flyball_streams.engine.cell.incidents.nodes.node_evidence import NOT_THE_NODE, cited_by, independent
from flyball_streams.engine.cell.incidents.nodes.quarantine import PERSISTS_S, Quarantine, QuarantinedNode, most_out
from flyball_streams.engine.cell.incidents.open_incident import RANK, OpenIncident
from flyball_streams.engine.cell.incidents.responses import Responses
from flyball_streams.engine.cell.incidents.restarts import Failure, Restarts
from flyball_streams.engine.cell.incidents.slow_replicas import SlowReplicas
from flyball_streams.engine.cell.incidents.summary import incident_record, severity_order
from flyball_streams.engine.fleet_index import FleetIndex
from flyball_streams.engine.parameters import HealthParameters
from flyball_streams.engine.symptoms import NO_TELEMETRY

QUIET_S = 600.0
QUIET_TICKS = 40
"""An incident without a new symptom for the longer of these is over; lasting symptoms repeat every 30 ticks."""
REPEAT_S = 300.0
"""An unchanged incident that still has symptoms is published again after this time."""

STRAGGLING = "straggling"
SLOW_ITSELF = "the replica was as slow on another device: the program is the cause, and it is moved no more"
SILENT_FOR_S = 75.0
"""Nothing is placed on a silent node for so long after each report of its silence, which comes every minute."""


class IncidentState(msgspec.Struct):
    """State for a snapshot.

    Open incidents, decisions, suppressed anomalies, quarantined nodes, slow replicas, and restarts of what hangs.
    """

    incidents: dict[str, OpenIncident] = {}
    interventions: Interventions = msgspec.field(default_factory=Interventions)
    suppressed: dict[str, int] = {}
    quarantine: Quarantine = msgspec.field(default_factory=Quarantine)
    slow: SlowReplicas = msgspec.field(default_factory=SlowReplicas)
    restarts: Restarts = msgspec.field(default_factory=Restarts)


class IncidentManager:
    """Groups the symptoms of one cell into incidents.

    In each tick: :meth:`ingest` the symptoms, add its :meth:`proposals`, check :meth:`permits` for each proposal,
    :meth:`note` the decisions, and publish :meth:`records`.
    """

    def __init__(
        self, cell: str, config: HealthParameters, directory: FleetIndex, state: IncidentState | None = None
    ) -> None:
        self.cell = cell
        self.config = config
        self.directory = directory
        self.state = state or IncidentState()
        self.correlation = Correlation(cell, directory, self.state.incidents, config.false_incidents_per_1000_gpu_days)
        self.responses = Responses(cell, directory)
        self.released: list[QuarantinedNode] = []
        self._leaving: set[str] = set()
        self._hangs: list[tuple[Symptom, OpenIncident]] = []
        self._now_ns = 0

    def receive(self, outcome: Outcome) -> None:
        """Apply an outcome to the incidents that have its decision among their actions, and to a node's check."""
        self.state.quarantine.receive(outcome)
        failure = self.state.restarts.receive(outcome)
        if failure is not None:
            self._fail(failure, outcome.time_ns)
        if outcome.status in VOID and outcome.type == "Migrate":
            self.state.quarantine.take_back(outcome)
        action = self.state.interventions.receive(outcome)
        if action is not None:
            for incident in list(self.correlation.of_decision(action.decision)):
                self._add_action(incident, action)

    def ingest(self, tick: Tick, symptoms: Iterable[Symptom]) -> None:
        """Apply the symptoms of a tick, the strongest first, then the earliest."""
        now_ns, state = tick.end_ns, self.state
        self.responses.read()
        self._leaving, self._hangs, self._now_ns = set(), [], now_ns
        state.interventions.forget(now_ns)
        state.restarts.forget(now_ns, self.directory)
        for failure in state.restarts.lapsed(now_ns):
            self._fail(failure, now_ns)
        state.suppressed = {name: at for name, at in state.suppressed.items() if 0 <= now_ns - at < QUIET_S * NS_PER_S}
        order = sorted(
            symptoms, key=lambda s: (-RANK[s.strength], s.since_ns, s.node, s.device, s.workload, s.detector)
        )
        cleared = state.quarantine.cleared
        for symptom in order:
            if cleared and all(name in cleared for name in cited_by(symptom)):
                continue  # the node was found to be healthy since
            if symptom.detector == STRAGGLING and state.slow.moves and self._is_slow_itself(symptom, now_ns):
                symptom = replace(symptom, cause="application", text=SLOW_ITSELF)
            if symptom.detector == NO_TELEMETRY and not self._is_missed(symptom.node):
                continue
            if self.responses.bits and symptom.statistical and not self._passes(symptom):
                state.suppressed[symptom.record] = now_ns
            else:
                incident = self.correlation.ingest(symptom, now_ns, state.interventions.explains(symptom))
                if symptom.detector == HANG and symptom.workload:
                    self._hangs.append((symptom, incident))
        if order:
            self.correlation.spread(now_ns)
        self._hangs = [(hang, state.incidents.get(found.merged_into, found)) for hang, found in self._hangs]
        self._apply_responses(now_ns)
        share = self.config.quarantine_share
        checked = state.restarts.under_way(now_ns)
        state.quarantine.step(
            now_ns, self.cell, state.incidents.values(), self.responses.readmitted, self.directory, share, checked
        )
        self.released = [entry for entry in state.quarantine.nodes.values() if entry.condition == "back"]
        for incident in state.incidents.values():
            if any(incident.id in entry.incidents and entry.evidence for entry in self.released):
                incident.status, incident.dirty = "resolved", True

    def quarantine(self, unhealthy: dict[str, int], until_ns: int) -> None:
        """Add quarantined devices to ``unhealthy`` until ``until_ns``, and remove devices of nodes that are back.

        Devices of nodes whose gangs wait for a check are added, too.
        """
        for entry in self.released:
            inventory = self.directory.inventories.get(entry.node)
            for device in entry.devices or [d.id for d in (inventory.devices if inventory is not None else ())]:
                unhealthy.pop(device, None)
        unhealthy.update(dict.fromkeys(self.state.quarantine.devices(self.directory), until_ns))
        for node in self.state.restarts.under_way(self._now_ns):
            inventory = self.directory.inventories.get(node)
            unhealthy.update((d.id, until_ns) for d in (inventory.devices if inventory is not None else ()))

    def close_silent(self, unhealthy: dict[str, int], tick: Tick, symptoms: Iterable[Symptom]) -> None:
        """Add the devices of nodes that send nothing to ``unhealthy``, until a report of their silence is overdue.

        Their inventories are the last that they sent: GPUs that seem free may be gone with the node. A newer inventory,
        such as the controller's, shows what is there now. An agent sends its inventory before the frames of a tick, so
        the last one of an agent that died may be a tick newer than its last frame.
        """
        until_ns = tick.end_ns + round(SILENT_FOR_S * NS_PER_S) + 2 * tick.period_ns
        for symptom in symptoms:
            inventory = self.directory.inventories.get(symptom.node) if symptom.detector == NO_TELEMETRY else None
            if inventory is not None and inventory.time_ns > symptom.since_ns + 2 * tick.period_ns:
                continue
            for device in inventory.devices if inventory is not None else ():
                unhealthy[device.id] = max(until_ns, unhealthy.get(device.id, 0))

    def proposals(self, tick: Tick) -> Iterator[Proposal]:
        """Proposals that follow from incidents.

        They move ranks of gangs that stand still off the faulty node, or restart the gang where no node is to blame.
        They also move replicas off devices that were only slow when the move was proposed, and that have shown a second
        sign since.
        """
        yield from moves_off(self.cell, self.state.incidents.values(), self.directory, tick)
        yield from restarts(self.cell, self._hangs, self.state.restarts, self.directory, tick)
        yield from self.state.slow.confirmed(tick, self._is_slow_device)

    def permits(self, proposal: Proposal) -> bool:
        """Whether a proposal may be decided; only those to migrate off a device can be refused.

        A migration is refused if its incident is silenced or suppressed by labels, if its node may not be cordoned
        because too many are, or if its evidence has been cleared. A migration off a device that is only slow needs a
        second sign, or a sign that lasts, and is refused if the replica was as slow on another device.
        """
        if proposal.action != "migrate":
            return True
        only_slow = proposal.confidence < FAILING and bool(proposal.workload)
        entry, cleared = self.state.quarantine.nodes.get(proposal.node), self.state.quarantine.cleared
        if entry is not None and entry.held:
            return False
        if cleared and any(e.record in cleared for e in proposal.evidence):
            return False
        if only_slow and not self._is_slow_device(proposal):
            self.state.slow.wait(proposal, self._now_ns)
            return False
        incidents = list(self.correlation.of_device(proposal.device, proposal.node))
        if not incidents:
            cited = {e.record for e in proposal.evidence if e.name == "anomaly"}
            return cited.isdisjoint(self.state.suppressed)
        incidents = [incident for incident in incidents if not incident.silence]
        if not incidents or not proposal.workload:
            return bool(incidents)
        return any(c.cause in NOT_THE_NODE for c in incidents) or self._may_leave(proposal.node)

    def note(self, decision: AnyDecision) -> None:
        """Note a decision: it explains later effects on its workload, and is an action on the incidents it is about."""
        action = self.state.interventions.add(decision)
        incidents: Iterable[OpenIncident] = ()
        if isinstance(decision, Migrate):
            incidents = list(self.correlation.of_device(decision.from_device, decision.from_node))
            if decision.from_device:
                self._hold(decision, incidents)
        elif isinstance(decision, Preempt) and decision.restarts:
            incidents = [incident for hang, incident in self._hangs if hang.workload == decision.workload]
            self.state.restarts.stop(decision, next((one.id for one in incidents), ""), self.directory)
        elif isinstance(decision, Scale):
            self.state.restarts.start(decision)
        elif isinstance(decision, Check):
            cited = [self.state.incidents.get(e.record) for e in decision.evidence]
            incidents = [incident for incident in cited if incident is not None]
        for incident in incidents:
            self._add_action(incident, action)

    def checks(self, tick: Tick, lives_ns: int) -> list[Check]:
        """Decisions to check nodes now, each valid for ``lives_ns``; silenced nodes and gangs are left out.

        The nodes of a gang that hung again are checked while they are empty, never more than may be out at once: what
        is wrong with all checks must not close a cell. Where three or more may be out, one is left for a fault.
        """
        quarantine, restarts, now_ns = self.state.quarantine, self.state.restarts, tick.end_ns
        silenced = {incident.node for incident in self.state.incidents.values() if incident.silence}
        if self.responses.silences:  # a window holds for a node without an open incident, too
            silenced |= {node for node in quarantine.nodes if self.responses.is_silenced(node, now_ns)}
        after_ns = round(self.config.check_after_s * NS_PER_S)
        under_way = restarts.under_way(now_ns)
        found = list(quarantine.checks(self.cell, now_ns, after_ns, lives_ns, silenced | under_way, self.directory))
        for name, restart in restarts.known.items():
            incident = self.state.incidents.get(restart.incident)
            if incident is not None and incident.silence:
                restarts.end(name)
        nodes = restarts.to_check()
        if nodes:
            silenced |= {node for node in nodes if self.responses.is_silenced(node, now_ns)}
            out = quarantine.out()
            capacity = most_out(self.config.quarantine_share, len(self.directory.nodes(self.cell)))
            most = capacity - (capacity > 2) - len(out)
            found += restarts.due(self.cell, now_ns, lives_ns, most, silenced | out, self.directory)
        return found

    def is_checked(self, workload: str) -> bool:
        """Whether a workload that has stopped must not start yet, as its nodes are checked."""
        return self.state.restarts.holds(workload, self._now_ns)

    def records(self, tick: Tick) -> Iterator[Incident]:
        """Incidents that changed or are due again, the most severe first; ended ones are removed."""
        now_ns = tick.end_ns
        quiet_ns = max(round(QUIET_S * NS_PER_S), QUIET_TICKS * tick.period_ns)
        due: list[OpenIncident] = []
        checked = self.state.quarantine.checked(now_ns) | self.state.restarts.incidents(now_ns)
        for incident in self.state.incidents.values():
            if (
                incident.status == "open"
                and incident.id not in checked
                and not incident.opened_ns <= now_ns < incident.seen_ns + quiet_ns
            ):
                incident.status, incident.dirty = "resolved", True
            repeats = (
                incident.count
                and now_ns - incident.published_ns >= REPEAT_S * NS_PER_S
                and incident.seen_ns > incident.published_ns
            )
            if (incident.dirty or repeats) and (incident.revision or incident.status == "open"):
                due.append(incident)
        for incident in sorted(due, key=severity_order):
            yield incident_record(incident, self.cell, self.directory, now_ns)
        for incident in [incident for incident in self.state.incidents.values() if incident.status != "open"]:
            self.correlation.close(incident)

    def conditions(self, tick: Tick) -> Iterator[NodeCondition]:
        """Conditions of nodes that changed or are due again."""
        yield from self.state.quarantine.records(self.cell, tick.end_ns, self.directory)

    def _fail(self, failure: Failure, now_ns: int) -> None:
        """Quarantine a node that has not passed a check."""
        node, gang, message = failure
        self.state.quarantine.fail(node, gang.devices, gang.incident, gang.check, message, now_ns, self.directory)

    def _may_leave(self, node: str) -> bool:
        """Whether work may leave a node: the node is out already, or one more node may be."""
        quarantine, most = (
            self.state.quarantine,
            most_out(self.config.quarantine_share, len(self.directory.nodes(self.cell))),
        )
        out = quarantine.out() | self._leaving | self.state.restarts.under_way(self._now_ns)
        if node not in out and len(out) >= most:
            return False
        self._leaving.add(node)
        return True

    def _hold(self, decision: Migrate, incidents: Iterable[OpenIncident]) -> None:
        """Quarantine the node that work leaves: the platform cordons it, and a check has to open it again."""
        if decision.confidence < FAILING:
            self.state.slow.note(decision.workload, decision.replica, decision.from_device, decision.time_ns)
        if not any(incident.cause in NOT_THE_NODE for incident in incidents):
            names = [incident.id for incident in incidents]
            self.state.quarantine.hold(decision, names, self.directory)

    def _is_slow_device(self, proposal: Proposal) -> bool:
        """Whether a device itself, and not the work on it, is slow, by more than one noisy metric."""
        running = {replica.name for replica in self.directory.replicas(proposal.workload)}
        by_itself = self.state.slow.is_slow_itself(
            proposal.workload, proposal.replica, proposal.device, self._now_ns, running
        )
        incidents = self.correlation.of_device(proposal.device, proposal.node)
        return not by_itself and any(_is_confirmed(incident, proposal) for incident in incidents)

    def _is_slow_itself(self, symptom: Symptom, now_ns: int) -> bool:
        inventory = self.directory.inventories.get(symptom.node)
        rows = (
            {i for i, d in enumerate(inventory.devices) if d.id == symptom.device}
            if inventory is not None
            else set[int]()
        )
        running = {replica.name for replica in self.directory.replicas(symptom.workload)}
        return any(
            self.state.slow.is_slow_itself(held.workload, held.replica, symptom.device, now_ns, running)
            for held in (inventory.allocations if inventory is not None else ())
            if held.workload == symptom.workload and not rows.isdisjoint(held.devices)
        )

    def _is_missed(self, node: str) -> bool:
        """Whether a node should send frames: it was not removed, nor did its agent stop on purpose while idle."""
        inventory = self.directory.inventories.get(node)
        return inventory is not None and (inventory.agent == "running" or inventory.holds_work)

    def _passes(self, symptom: Symptom) -> bool:
        return passes(symptom, self.responses.bits.get((symptom.cause, self.correlation.model_of(symptom)), 0.0))

    def _apply_responses(self, now_ns: int) -> None:
        responses = self.responses
        for incident in self.state.incidents.values():
            if incident.status != "open":
                continue
            found = responses.silence_of(incident, now_ns) if responses.silences else ""
            by = responses.acknowledged.get(incident.id, incident.acknowledged_by)  # or that of one merged into it
            label = responses.labels.get(incident.id)
            if (found, by, label) != (incident.silence, incident.acknowledged_by, incident.label):
                incident.silence, incident.acknowledged_by, incident.label, incident.dirty = found, by, label, True

    def _add_action(self, incident: OpenIncident, action: IncidentAction) -> None:
        if incident.actions.get(action.decision) != action:
            incident.actions[action.decision], incident.dirty = action, True
            self.correlation.settle(incident)


def _is_confirmed(incident: OpenIncident, proposal: Proposal) -> bool:
    """Whether more than one noisy metric is against a device: its sign lasts, or symptoms of different origin agree.

    Symptoms of other devices that are part of the same incident say nothing about it.
    """
    known = (incident.lead, *incident.symptoms.values())
    own = [s for s in known if s.device == proposal.device or (s.gang and s.workload == proposal.workload)]
    lasts = any(s.time_ns - s.since_ns >= PERSISTS_S * NS_PER_S for s in own if s.device == proposal.device)
    return lasts or independent(own) >= 2
