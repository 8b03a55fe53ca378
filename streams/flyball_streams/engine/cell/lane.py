"""The cell lane: wishes, marks and outcomes of its cells in, decisions out."""

from collections.abc import Sequence

import msgspec

from flyball_contracts.codec import Message, decode_record, record_message
from flyball_contracts.config import WorkerConfig
from flyball_contracts.errors import DecodeError
from flyball_contracts.records import Outcome, Proposal, TickClosed
from flyball_streams.engine.cell.arbiter import Arbiter, Memory
from flyball_streams.engine.directory import Directory
from flyball_streams.engine.gate import STAGGER, TRUSTED, Gate
from flyball_streams.engine.lane import Incoming, refuse
from flyball_streams.engine.packing import pack, pack_struct, unpack, unpack_struct
from flyball_streams.engine.stats import LaneStats

STAGE = "cell lane"


class CellWishes(msgspec.Struct):
    """Open ticks of one cell and the wishes in them."""

    gate: Gate
    open: dict[int, list[Proposal]] = {}


class CellLane:
    """Decides for the cells in one partition of the proposals topic."""

    def __init__(self, partition: int, config: WorkerConfig, directory: Directory) -> None:
        self.source = f"cell/{partition}"
        self.config = config
        self.directory = directory
        self.stats = LaneStats()
        self.ticks: dict[str, CellWishes] = {}
        self.arbiters: dict[str, Arbiter] = {}

    def step(self, batch: Sequence[Incoming]) -> list[Message]:
        """Take a micro-batch of proposals, marks and outcomes in; see :class:`~flyball_streams.engine.lane.Lane`."""
        out: list[Message] = []
        for message in batch:
            try:
                record = decode_record(message.topic, message.value, message.headers)
            except DecodeError as error:
                self.stats.undecodable += 1
                out.append(refuse(message, STAGE, error))
                continue
            if isinstance(record, Proposal | TickClosed):
                self._take(record)
            else:
                self.stats.ignored += 1
        for name, ticks in sorted(self.ticks.items()):
            for tick in ticks.gate.close():
                self.stats.ticks += 1
                wishes = sorted(ticks.open.pop(tick.index, []), key=lambda p: (p.workload, p.id))
                for decision in self._arbiter(name).decide(tick, wishes):
                    self.stats.records += 1
                    out.append(record_message(decision, f"/{self.source}"))
        return out

    def snapshot(self) -> bytes:
        """The whole state."""
        return pack(
            {
                "stats": pack_struct(self.stats),
                "ticks": {name: pack_struct(ticks) for name, ticks in self.ticks.items()},
                "memories": {name: pack_struct(arbiter.memory) for name, arbiter in self.arbiters.items()},
            }
        )

    def restore(self, state: bytes) -> None:
        """Take on the state of a snapshot."""
        loaded = unpack(state)
        self.stats = unpack_struct(loaded["stats"], LaneStats)
        self.ticks = {name: unpack_struct(raw, CellWishes) for name, raw in loaded["ticks"].items()}
        self.arbiters = {}
        for name, raw in loaded["memories"].items():
            self._arbiter(name).memory = unpack_struct(raw, Memory)

    def heed(self, outcome: Outcome) -> None:
        """Learn what became of a decision; outcomes of other lanes' cells are ignored."""
        if outcome.cell in self.ticks:
            self._arbiter(outcome.cell).heed(outcome)

    def _arbiter(self, name: str) -> Arbiter:
        arbiter = self.arbiters.get(name)
        if arbiter is None:
            arbiter = self.arbiters[name] = Arbiter(name, self.config, self.directory)
        return arbiter

    def _take(self, record: Proposal | TickClosed) -> None:
        ticks = self.ticks.get(record.cell)
        if ticks is None:
            late = self.config.lateness_ticks
            ticks = CellWishes(Gate(record.tick.period_ns, self.config.lane_lateness_ticks, TRUSTED, grace=late + 2 * STAGGER))
            self.ticks[record.cell] = ticks
        index = record.tick.index
        if isinstance(record, TickClosed):
            ticks.gate.arrive(record.source, index)
            self.stats.used += 1
        else:
            # The marks are the workload lanes'; a wish of a node lane may come after them. It is no less true then.
            ticks.open.setdefault(max(index, ticks.gate.closed + 1), []).append(record)
            self.stats.used += 1
