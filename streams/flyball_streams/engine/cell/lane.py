"""The cell lane: proposals, marks and outcomes of its cells in, decisions out."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from flyball_contracts.codec import Message, record_message
from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import Proposal, ProposalTick, Record, Symptom, TableOffsets, Tick
from flyball_streams.engine.cell.arbiter import Arbiter
from flyball_streams.engine.cell.cycle import LIVES_TICKS
from flyball_streams.engine.cell.incidents import Desk
from flyball_streams.engine.cell.incidents.desk import Book
from flyball_streams.engine.cell.memory import Memory
from flyball_streams.engine.directory import Directory
from flyball_streams.engine.gate import FORGET_TICKS, STAGGER, Gate
from flyball_streams.engine.lane import Incoming, check_period, take_records
from flyball_streams.engine.offsets import NOWHERE, as_read, farther
from flyball_streams.engine.packing import pack, pack_struct, reading, unpack, unpack_struct
from flyball_streams.engine.parameters import Parameters
from flyball_streams.engine.stats import LaneStats, count
from flyball_streams.engine.view import View

STAGE = "cell lane"


class CellProposals(msgspec.Struct):
    """Open ticks of one cell and the proposals in them; and the latest of each source, by id, with their ticks.

    ``offsets`` are how far the tables count, by tick. ``told`` is the newest tick of which each source has said all,
    and ``parts`` the last part of it, for those that say it in several. ``symptoms`` are those of the open ticks.
    """

    gate: Gate
    open: dict[int, list[tuple[Proposal, ...]]] = {}
    received: dict[str, dict[str, tuple[int, Proposal]]] = {}
    offsets: dict[int, TableOffsets] = {}
    told: dict[str, int] = {}
    parts: dict[str, int] = {}
    symptoms: dict[int, list[tuple[Symptom, ...]]] = {}

    def is_again(self, message: ProposalTick) -> bool:
        """Whether a lane that came back after a crash says again what it has said: it may be true no longer.

        What is far ahead of the marks was said before the cell's clock was set back.
        """
        told, index = self.told.get(message.source, -1), message.tick.index
        if index == told and message.part > self.parts.get(message.source, 0):
            return False
        return index <= told <= self.gate.front + self.gate.max_ahead

    def note(self, message: ProposalTick) -> None:
        """Take note of the last message of a lane about a tick."""
        if message.closes or message.source.startswith("node/"):
            self.told[message.source] = message.tick.index
            if message.part:
                self.parts[message.source] = message.part
            else:
                self.parts.pop(message.source, None)

    def in_full(self, message: ProposalTick) -> tuple[Proposal, ...]:
        """Proposals of a message, with those that it repeats by id; one that was never received is left out."""
        received, index = self.received.setdefault(message.source, {}), message.tick.index
        repeated = tuple(known[1] for name in message.repeated if (known := received.get(name)) is not None)
        proposals = (*repeated, *message.proposals)
        if message.part == 0:  # what this tick does not name is not proposed any more
            received = self.received[message.source] = {
                name: known for name, known in received.items() if known[0] >= index
            }
        received.update((proposal.id, (index, proposal)) for proposal in proposals)
        return proposals

    def take(self, index: int) -> list[Proposal]:
        """Proposals up to a tick that is closed now, each once: a lane that was restarted publishes some again."""
        proposals = {p.id: p for i in sorted(self.open) if i <= index for batch in self.open[i] for p in batch}
        self.open = {i: late for i, late in self.open.items() if i > index}
        self.received = {source: received for source, received in self.received.items() if source in self.gate.sources}
        return sorted(proposals.values(), key=lambda p: (p.workload, p.id))

    def take_symptoms(self, index: int) -> list[Symptom]:
        """Symptoms up to a tick that is closed now."""
        symptoms = [s for i in sorted(self.symptoms) if i <= index for batch in self.symptoms[i] for s in batch]
        self.symptoms = {i: late for i, late in self.symptoms.items() if i > index}
        return symptoms


class Whole(NamedTuple):
    """What a tick that has closed holds, as it was then: what comes later in the same batch is not part of it.

    ``offsets`` are how far the tables count; ``None`` where no source told it.
    """

    cell: str
    tick: Tick
    proposals: list[Proposal]
    symptoms: list[Symptom]
    offsets: TableOffsets | None


class CellLane:
    """Decides for the cells in one partition of the proposals topic.

    There are ``workload_partitions`` workload lanes (0: unknown), each of which publishes each tick.
    """

    def __init__(self, partition: int, config: Parameters, directory: Directory, workload_partitions: int = 0) -> None:
        self.workload_partitions = workload_partitions
        self.source = f"cell/{partition}"
        self.config = config
        self.directory = directory
        self.stats = LaneStats()
        self.ticks: dict[str, CellProposals] = {}
        self.arbiters: dict[str, Arbiter] = {}
        self.desks: dict[str, Desk] = {}
        self.views: dict[str, View] = {}
        self.base: TableOffsets = directory.offsets
        self.age_ns = round(config.table_age_s * NS_PER_S)
        self._whole: list[Whole] = []

    def step(self, batch: Sequence[Incoming]) -> list[Message]:
        """Take a micro-batch of proposals in; see :class:`~flyball_streams.engine.lane.Lane`."""
        out = take_records(batch, (ProposalTick,), self._take, self.stats, STAGE)
        whole, self._whole = self._whole, []
        for cell, tick, proposals, symptoms, offsets in sorted(whole, key=lambda w: w.cell):
            self.stats.ticks += 1
            arbiter, desk = self._arbiter(cell), self.desks[cell]
            for outcome in self.views[cell].advance(tick, offsets):
                arbiter.heed(outcome)
                desk.heed(outcome)
            desk.take(tick, symptoms)
            desk.quarantine(arbiter.memory.unhealthy, tick.end_ns + 2 * tick.period_ns)
            records: list[Record] = []
            for decision in arbiter.decide(tick, [p for p in proposals if desk.permits(p)]):
                desk.note(decision)
                records.append(decision)
            records += arbiter.told
            for check in desk.checks(tick, self._lives_ns(tick)):
                desk.note(check)
                records.append(check)
            records += [*desk.records(tick), *desk.conditions(tick)]
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
                "incidents": {name: pack_struct(desk.book) for name, desk in self.desks.items()},
                "views": {name: view.state() for name, view in self.views.items()},
                "base": self.base,
            }
        )

    def restore(self, state: bytes) -> None:
        """Take on the state of a snapshot; raises :class:`DecodeError` when it is not one."""
        loaded = unpack(state)
        with reading(self.source):
            self.stats = unpack_struct(loaded["stats"], LaneStats)
            self.base = as_read(loaded["base"])
            self.ticks = {name: unpack_struct(raw, CellProposals) for name, raw in loaded["ticks"].items()}
            self.arbiters, self.desks, self.views = {}, {}, {}
            for name, raw in loaded["memories"].items():
                self._arbiter(name).memory = unpack_struct(raw, Memory)
                self.views[name].load(loaded["views"][name])
                if name in loaded["incidents"]:  # a desk is made when the first symptom comes
                    self._sit(name, unpack_struct(loaded["incidents"][name], Book))

    def _lives_ns(self, tick: Tick) -> int:
        return max(round(self.config.decision_ttl_s * NS_PER_S), LIVES_TICKS * tick.period_ns)

    def _arbiter(self, name: str) -> Arbiter:
        arbiter = self.arbiters.get(name)
        if arbiter is None:
            view = self.views[name] = View(self.directory, name, base=self.base, age_ns=self.age_ns)
            arbiter = self.arbiters[name] = Arbiter(name, self.config, view)
            self._sit(name)
        return arbiter

    def _sit(self, name: str, book: Book | None = None) -> None:
        self.desks[name] = Desk(name, self.config.health, self.views[name], book)

    def _take(self, message: ProposalTick, log_ms: int) -> None:
        ticks, config = self.ticks.get(message.cell), self.config
        if ticks is None:
            grace = config.lateness_ticks + 2 * STAGGER
            gate = Gate(message.tick.period_ns, config.lane_lateness_ticks, config.max_ahead_ticks, grace)
            gate.expect(f"workload/{p}" for p in range(self.workload_partitions))
            ticks = self.ticks[message.cell] = CellProposals(gate)
        gate, index = ticks.gate, message.tick.index
        check_period(message.cell, message.source, message.tick, gate.period_ns)
        if again := ticks.is_again(message):
            self.stats.duplicates += 1
        else:
            # The marks are the workload lanes'; a proposal of a node lane may come after them, or from a node whose
            # clock runs ahead. It is no less true then.
            # A lane that reads a backlog before the others do may be far ahead of the marks; it is no liar.
            most = gate.max_ahead if log_ms < 0 else FORGET_TICKS
            ahead = gate.front >= 0 and index > gate.front + most
            counts = gate.closed + 1 if ahead else max(index, gate.closed + 1)
            if proposals := ticks.in_full(message):
                ticks.open.setdefault(counts, []).append(proposals)
            if message.symptoms:
                ticks.symptoms.setdefault(counts, []).append(message.symptoms)
        if not again:
            ticks.note(message)
        if not message.closes:
            self.stats.used += not again
            return
        arrival = gate.arrive(message.source, index, log_ms)
        count(self.stats, arrival)
        if arrival == "ok" and message.table_offsets:
            ticks.offsets[index] = farther(ticks.offsets.get(index, NOWHERE), message.table_offsets)
        for tick in gate.close():
            offsets = ticks.offsets.pop(tick.index, None)
            self._whole.append(
                Whole(message.cell, tick, ticks.take(tick.index), ticks.take_symptoms(tick.index), offsets)
            )
