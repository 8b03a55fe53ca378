"""The cell lane: reads the proposals, symptoms and outcomes of its cells, and publishes decisions and incidents."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from flyball_contracts.codec import Message, record_message
from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import Proposal, ProposalTick, Record, Symptom, TableOffsets, Tick
from flyball_streams.engine.cell.arbiter import Arbiter
from flyball_streams.engine.cell.cycle import LIVES_TICKS
from flyball_streams.engine.cell.incidents import IncidentManager
from flyball_streams.engine.cell.incidents.manager import IncidentState
from flyball_streams.engine.cell.memory import Memory
from flyball_streams.engine.cell.recently_counted import RecentlyCounted
from flyball_streams.engine.directory import Directory
from flyball_streams.engine.gate import FORGET_TICKS, STAGGER, Gate
from flyball_streams.engine.lane import OF_NODES, Incoming, check_period, take_records
from flyball_streams.engine.offsets import NO_OFFSETS, as_read, latest
from flyball_streams.engine.packing import pack, pack_struct, reading, unpack, unpack_struct
from flyball_streams.engine.parameters import Parameters
from flyball_streams.engine.stats import LaneStats, count
from flyball_streams.engine.symptoms import is_of_event
from flyball_streams.engine.view import View

STAGE = "cell lane"


class CellProposals(msgspec.Struct):
    """Open ticks of one cell and the proposals in them; state for a snapshot.

    ``received`` has the latest proposals of each source, by id, with their ticks. ``offsets`` are the table offsets of
    each tick. ``completed`` is the newest tick that each source has published in full, and ``parts`` its last part, for
    sources that publish in several. ``symptoms`` are those of the open ticks. ``counted`` has recent events by their
    ids, and recent moves by the devices that they leave.
    """

    gate: Gate
    open: dict[int, list[tuple[Proposal, ...]]] = {}
    received: dict[str, dict[str, tuple[int, Proposal]]] = {}
    offsets: dict[int, TableOffsets] = {}
    completed: dict[str, int] = {}
    parts: dict[str, int] = {}
    symptoms: dict[int, list[tuple[Symptom, ...]]] = {}
    counted: RecentlyCounted = msgspec.field(default_factory=RecentlyCounted)

    def is_repeat(self, message: ProposalTick) -> bool:
        """Whether a message repeats one from before a crash of its lane; it may be outdated.

        Ticks of a source far ahead of the watermark do not count: they are from before the cell's clock was set back.
        """
        completed, index = self.completed.get(message.source, -1), message.tick.index
        if index == completed and message.part > self.parts.get(message.source, 0):
            return False
        return index <= completed <= self.gate.front + self.gate.max_ahead

    def note(self, message: ProposalTick) -> None:
        """Note the last message of a lane about a tick."""
        if message.closes or message.source.startswith(OF_NODES):
            self.completed[message.source] = message.tick.index
            if message.part:
                self.parts[message.source] = message.part
            else:
                self.parts.pop(message.source, None)

    def expand(self, message: ProposalTick) -> tuple[Proposal, ...]:
        """Proposals of a message, with those that it repeats by id; unknown ids are left out."""
        received, index = self.received.setdefault(message.source, {}), message.tick.index
        repeated = tuple(known[1] for name in message.repeated if (known := received.get(name)) is not None)
        proposals = (*repeated, *message.proposals)
        if message.part == 0:  # proposals that this tick does not name are withdrawn
            received = self.received[message.source] = {
                name: known for name, known in received.items() if known[0] >= index
            }
        received.update((proposal.id, (index, proposal)) for proposal in proposals)
        return proposals

    def pop_proposals(self, index: int) -> list[Proposal]:
        """Remove and return the proposals up to a closed tick, each once: a restarted lane publishes some again."""
        proposals = {p.id: p for i in sorted(self.open) if i <= index for batch in self.open[i] for p in batch}
        self.open = {i: late for i, late in self.open.items() if i > index}
        self.received = {source: received for source, received in self.received.items() if source in self.gate.sources}
        return sorted(proposals.values(), key=lambda p: (p.workload, p.id))

    def add(self, message: ProposalTick, index: int, is_repeat: bool) -> None:
        """Add the proposals and symptoms of a message to tick ``index``, each event once.

        After a crash a lane may find events in ticks that it has published without them. So a repeat adds only the
        symptoms of events that have not counted, and a node lane's moves off devices for which no move has counted.
        """
        if is_repeat and message.tick.index <= self.counted.forgotten:
            return
        proposals = self._new_moves(message) if is_repeat else self.expand(message)
        of_events = [s for s in message.symptoms if is_of_event(s) and s.record not in self.counted]
        symptoms = of_events if is_repeat else [s for s in message.symptoms if not is_of_event(s)] + of_events
        if proposals:
            self.open.setdefault(index, []).append(proposals)
        if symptoms:
            self.symptoms.setdefault(index, []).append(tuple(symptoms))
        self.counted.add((p.device for p in proposals if _is_move(p)), index)
        self.counted.add((s.record for s in of_events), index)

    def _new_moves(self, message: ProposalTick) -> tuple[Proposal, ...]:
        if not message.source.startswith(OF_NODES):
            return ()
        return tuple(p for p in message.proposals if _is_move(p) and p.device not in self.counted)

    def pop_symptoms(self, index: int) -> list[Symptom]:
        """Remove and return the symptoms up to a closed tick."""
        symptoms = [s for i in sorted(self.symptoms) if i <= index for batch in self.symptoms[i] for s in batch]
        self.symptoms = {i: late for i, late in self.symptoms.items() if i > index}
        self.counted.forget(index, self.gate.period_ns)
        return symptoms


def _is_move(proposal: Proposal) -> bool:
    return proposal.action == "migrate" and bool(proposal.device)


class ClosedTick(NamedTuple):
    """The contents of a tick when it closed, without later messages of the same batch.

    ``offsets`` are its table offsets; ``None`` if no source gave them.
    """

    cell: str
    tick: Tick
    proposals: list[Proposal]
    symptoms: list[Symptom]
    offsets: TableOffsets | None


class CellLane:
    """Decides for the cells in one partition of the proposals topic.

    ``workload_partitions`` is the number of workload lanes (0: unknown), each of which publishes every tick.
    """

    def __init__(self, partition: int, config: Parameters, directory: Directory, workload_partitions: int = 0) -> None:
        self.workload_partitions = workload_partitions
        self.source = f"cell/{partition}"
        self.config = config
        self.directory = directory
        self.stats = LaneStats()
        self.ticks: dict[str, CellProposals] = {}
        self.arbiters: dict[str, Arbiter] = {}
        self.incident_managers: dict[str, IncidentManager] = {}
        self.views: dict[str, View] = {}
        self.base: TableOffsets = directory.offsets
        self.age_ns = round(config.table_age_s * NS_PER_S)
        self._closed: list[ClosedTick] = []

    def step(self, batch: Sequence[Incoming]) -> list[Message]:
        """Process a micro-batch of proposals; see :class:`~flyball_streams.engine.lane.Lane`."""
        out = take_records(batch, (ProposalTick,), self._ingest, self.stats, STAGE)
        closed, self._closed = self._closed, []
        for cell, tick, proposals, symptoms, offsets in sorted(closed, key=lambda w: w.cell):
            self.stats.ticks += 1
            arbiter, incidents = self._arbiter(cell), self.incident_managers[cell]
            for outcome in self.views[cell].advance(tick, offsets):
                arbiter.receive(outcome)
                incidents.receive(outcome)
            incidents.ingest(tick, symptoms)
            incidents.quarantine(arbiter.memory.unhealthy, tick.end_ns + 2 * tick.period_ns)
            incidents.close_silent(arbiter.memory.unhealthy, tick, symptoms)
            records: list[Record] = []
            proposals = [*proposals, *incidents.proposals(tick)]
            for decision in arbiter.decide(tick, proposals, incidents.permits, incidents.is_checked):
                incidents.note(decision)
                records.append(decision)
            records += arbiter.choices
            for check in incidents.checks(tick, self._lifetime_ns(tick)):
                incidents.note(check)
                records.append(check)
            records += [*incidents.records(tick), *incidents.conditions(tick)]
            self.stats.records += len(records)
            out += [record_message(record, f"/{self.source}") for record in records]
        return out

    def snapshot(self) -> bytes:
        """The whole state."""
        return pack(
            {
                "stats": pack_struct(self.stats),
                "ticks": {name: pack_struct(ticks) for name, ticks in self.ticks.items()},
                "memories": {name: pack_struct(arbiter.memory) for name, arbiter in self.arbiters.items()},
                "incidents": {name: pack_struct(incidents.state) for name, incidents in self.incident_managers.items()},
                "views": {name: view.state() for name, view in self.views.items()},
                "base": self.base,
            }
        )

    def restore(self, state: bytes) -> None:
        """Replace the state by that of a snapshot; raises :class:`DecodeError` if it is not one."""
        loaded = unpack(state)
        with reading(self.source):
            self.stats = unpack_struct(loaded["stats"], LaneStats)
            self.base = as_read(loaded["base"])
            self.ticks = {name: unpack_struct(raw, CellProposals) for name, raw in loaded["ticks"].items()}
            self.arbiters, self.incident_managers, self.views = {}, {}, {}
            for name, raw in loaded["memories"].items():
                self._arbiter(name).memory = unpack_struct(raw, Memory)
                self.views[name].load(loaded["views"][name])
                if name in loaded["incidents"]:  # not in snapshots from before its first symptom
                    self._add_incident_manager(name, unpack_struct(loaded["incidents"][name], IncidentState))

    def _lifetime_ns(self, tick: Tick) -> int:
        return max(round(self.config.decision_ttl_s * NS_PER_S), LIVES_TICKS * tick.period_ns)

    def _arbiter(self, name: str) -> Arbiter:
        arbiter = self.arbiters.get(name)
        if arbiter is None:
            view = self.views[name] = View(self.directory, name, base=self.base, age_ns=self.age_ns)
            arbiter = self.arbiters[name] = Arbiter(name, self.config, view)
            self._add_incident_manager(name)
        return arbiter

    def _add_incident_manager(self, name: str, state: IncidentState | None = None) -> None:
        self.incident_managers[name] = IncidentManager(name, self.config.health, self.views[name], state)

    def _ingest(self, message: ProposalTick, log_ms: int) -> None:
        ticks, config = self.ticks.get(message.cell), self.config
        if ticks is None:
            grace = config.lateness_ticks + 2 * STAGGER
            period_ns = message.tick.period_ns
            gate = Gate(period_ns, config.lane_lateness_ticks(period_ns), config.max_ahead_ticks, grace)
            gate.expect(f"workload/{p}" for p in range(self.workload_partitions))
            ticks = self.ticks[message.cell] = CellProposals(gate)
        gate, index = ticks.gate, message.tick.index
        check_period(message.cell, message.source, message.tick, gate.period_ns)
        # Only workload lanes close ticks. A proposal of a node lane may come after that, or from a node whose clock
        # runs ahead; it still counts. A lane that reads a backlog before the others may be far ahead, too.
        most = gate.max_ahead if log_ms < 0 else FORGET_TICKS
        ahead = gate.front >= 0 and index > gate.front + most
        counted_at = gate.closed + 1 if ahead else max(index, gate.closed + 1)
        repeat = ticks.is_repeat(message)
        ticks.add(message, counted_at, repeat)
        if repeat:
            self.stats.duplicates += 1
        else:
            ticks.note(message)
        if not message.closes:
            self.stats.used += not repeat
            return
        arrival = gate.arrive(message.source, index, log_ms)
        count(self.stats, arrival)
        if arrival == "ok" and message.table_offsets:
            ticks.offsets[index] = latest(ticks.offsets.get(index, NO_OFFSETS), message.table_offsets)
        for tick in gate.close():
            offsets = ticks.offsets.pop(tick.index, None)
            self._closed.append(
                ClosedTick(message.cell, tick, ticks.pop_proposals(tick.index), ticks.pop_symptoms(tick.index), offsets)
            )
