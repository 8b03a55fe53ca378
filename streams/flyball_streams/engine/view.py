"""A cell as it was at a tick: what a lane decides on.

A lane does not decide on the newest tables: when it reads a backlog, they tell how things are now, not how they were at
its tick. And when it comes back after a crash, they tell more than they did when it decided a tick first. So each lane
has a view of each of its cells, which moves with the ticks. Two things let a record count.

Its time: it counts from the first tick on that begins at its time or after it. A tick looks at its beginning and not at
its end, because its frames are sent at the beginning, and what is stamped later may be on its way still. A node's agent
sends an inventory before the first frame that names it. Owners, feeds and actuators are bound by no such order: what
they say counts when it has a certain age, so that a replay, which has it in time, hardly ever decides otherwise.

Its place in the log: it counts only where the tables had been read so far when the tick was decided. That is written
down (:mod:`.offsets`), so whoever decides the tick again lets the same records count. A record that came late counts
from the tick on that was decided after it came, and in a replay of the same ticks too.

What a view has taken in is part of the lane's snapshot, so a lane that goes on from one starts with the same rows,
whatever compaction has deleted since.

Two clocks are not compared. An owner or actuator whose clock is more than a day ahead of the telemetry lives in another
time, as beside a recording that is played: what it says counts at once. A tombstone has no event time, so that it
counts at once too. And where a view begins, the inventories that are known stand for what compaction deleted before.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import Any

from flyball_contracts.records import (
    Acknowledgement,
    Inventory,
    Label,
    Outcome,
    Pool,
    Readmission,
    Response,
    Signal,
    Silence,
    TableOffsets,
    Tick,
    WorkloadSpec,
)
from flyball_contracts.tables import ROWS, Row, Tables, time_of
from flyball_streams.engine.directory import Directory, Entry, Key, Place, Reader, Tombstone, in_order, key_of
from flyball_streams.engine.known import Known
from flyball_streams.engine.offsets import NOWHERE, as_read, farther, from_start, reach, within
from flyball_streams.engine.packing import pack_struct, unpack_struct

OUTCOMES_HEEDED = 256
"""Outcomes that a view knows to be heeded; older ones, said again after a restart, are heeded again."""
OTHER_CLOCK_NS = 86_400 * 1_000_000_000
ALL = ROWS
_RESPONSES = (Acknowledgement, Silence, Label, Readmission)
_CONCRETE: tuple[type[Row], ...] = (Inventory, WorkloadSpec, Pool, Signal, Outcome, *_RESPONSES)
_KINDS: dict[str, type[Row]] = {kind.__name__: kind for kind in _CONCRETE}


class View(Known, Reader):
    """One cell as it was at a tick, by the records of some kinds; :meth:`advance` moves it, and before it is empty.

    Rows of other cells are not in it, but for curves, which have no cell, and nodes and workloads that left this one.
    ``age_ns`` is how old a record of no node must be at the end of a tick; a tick at least. ``offsets`` are how far the
    tables count. ``base`` is how far they had been read when its lane was made: what of a
    key lies before that stands for older records of the key, which compaction has deleted.
    """

    def __init__(
        self,
        directory: Directory,
        cell: str,
        kinds: tuple[type[Row], ...] = (),
        *,
        base: TableOffsets = NOWHERE,
        age_ns: int = 0,
    ) -> None:
        super().__init__()
        self._clear(Tables(OUTCOMES_HEEDED))
        self.directory = directory
        self.cell = cell
        self.kinds = kinds or ALL
        self.base = base
        self.age_ns = age_ns
        self.offsets: TableOffsets = NOWHERE
        self.time_ns = -1
        self._mine: set[Key] = set()
        self._pending: list[tuple[int, Row]] = []
        self._unread: dict[Place, list[Entry]] = {}
        for entry in directory.entries():
            self.hear(entry)
        directory.follow(self)

    def hear(self, entry: Entry) -> None:
        """Keep an entry until the tables count so far."""
        if isinstance(entry.told, (*self.kinds, Tombstone)):
            in_order(self._unread.setdefault(entry[:2], []), entry)

    def restart(self, topic: str, partition: int) -> None:
        """Take note that the offsets of a partition begin anew."""
        self.offsets = from_start(self.offsets, topic, partition)
        for entry in self._unread.pop((topic, partition), []):
            self._take(entry)

    def inventory(self, node: str, boot_id: str, epoch: int) -> Inventory | None:
        """Inventory that a frame refers to, whatever its time."""
        return self.directory.inventory(node, boot_id, epoch)

    def advance(self, tick: Tick, offsets: TableOffsets | None = None) -> list[Outcome]:
        """Move to the beginning of a tick; return the outcomes that count from it on, by their times.

        The tables count as far as ``offsets``, by default as far as they were read. A view stays where it is when its
        cell's clock is set back.
        """
        begins, now = self.time_ns < 0, max(self.time_ns, tick.index * tick.period_ns)
        self.time_ns = now
        self._read(self.directory.offsets if offsets is None else offsets)
        if begins:
            self._stand_in()
        if not self._pending:
            return []
        if not begins and self._pending[0][0] > now and self._pending[-1][0] <= now + OTHER_CLOCK_NS:
            return []
        settled = now - max(0, self.age_ns - tick.period_ns)
        due, pending = list[Row](), list[tuple[int, Row]]()
        nodes = set[str]()
        for at, row in self._pending:
            foreign = at > now + OTHER_CLOCK_NS and isinstance(row, WorkloadSpec | Pool | Outcome | Response)
            stands_for_older = begins and isinstance(row, Inventory) and row.node not in nodes
            if at <= (now if isinstance(row, Inventory) else settled) or foreign or stands_for_older:
                due.append(row)
                nodes |= {row.node} if isinstance(row, Inventory) else set()
            else:
                pending.append((at, row))
        self._pending = pending
        outcomes = [row for row in due if self._fold(row) and isinstance(row, Outcome)]
        return sorted(outcomes, key=lambda o: (o.time_ns, o.decision, o.id))

    def state(self) -> dict[str, Any]:
        """State for a snapshot: rows, what waits for its time, and how far the tables count."""
        rows: list[Row] = [
            *self.inventories.values(),
            *self.specs.values(),
            *self.pools.values(),
            *self.signals.values(),
        ]
        rows += [*self.tables.outcomes.values(), *self.tables.responses.values()]
        return {
            "time_ns": self.time_ns,
            "rows": [_packed(row) for row in rows],
            "pending": [_packed(row) for _, row in self._pending],
            "offsets": self.offsets,
        }

    def load(self, state: dict[str, Any]) -> None:
        """Take on the state of a snapshot, then keep what the directory knows beyond it.

        A partition that was not read as far as the snapshot says was made again: all of it lies beyond.
        """
        self._clear(Tables(OUTCOMES_HEEDED))
        self._mine, self._pending, self._unread = set(), [], {}
        for row in map(_unpacked, state["rows"]):
            self._mine.add(key_of(row))
            self._fold(row)
        self.time_ns = state["time_ns"]
        for row in map(_unpacked, state["pending"]):
            self._wait(row)
        self.offsets = as_read(state["offsets"])
        for topic, offsets in self.offsets.items():
            for partition, offset in enumerate(offsets):
                if offset > reach(self.directory.offsets, topic, partition):
                    self.offsets = from_start(self.offsets, topic, partition)
        for entry in self.directory.entries():
            if not 0 <= entry.offset < reach(self.offsets, entry.topic, entry.partition):
                self.hear(entry)

    def _read(self, offsets: TableOffsets) -> None:
        """Let the tables count as far as these offsets, or as they were read where that is less."""
        offsets = within(offsets, self.directory.offsets)
        for place, unread in list(self._unread.items()):
            limit = reach(offsets, *place)
            count = bisect_left(unread, limit, key=lambda entry: entry.offset)
            for entry in unread[:count]:
                self._take(entry)
            del unread[:count]
            if not unread:
                del self._unread[place]
        self.offsets = farther(self.offsets, offsets)

    def _stand_in(self) -> None:
        """Take the oldest record of each key of which none counts yet."""
        known = {key_of(row) for _, row in self._pending}
        for entry in self._based():
            if not isinstance(entry.told, Tombstone) and (key := key_of(entry.told)) not in known:
                known.add(key)
                self._take(entry)

    def _based(self) -> Iterator[Entry]:
        for place, unread in sorted(self._unread.items()):
            yield from (entry for entry in unread if entry.offset < reach(self.base, *place))

    def _take(self, entry: Entry) -> None:
        told = entry.told
        if isinstance(told, Tombstone):
            self._drop(*told)
            self._pending = [(at, row) for at, row in self._pending if key_of(row)[:2] != told]
        else:
            self._wait(told)

    def _wait(self, row: Row) -> None:
        """Keep a row until its time comes, if it concerns this view."""
        place = key_of(row)
        if not isinstance(row, Signal) and row.cell == self.cell:
            self._mine.add(place)
        elif not isinstance(row, Signal) and place not in self._mine:
            return
        insort(self._pending, (time_of(row), row), key=_at)


def _at(entry: tuple[int, Row]) -> int:
    return entry[0]


def _packed(row: Row) -> list[Any]:
    return [type(row).__name__, pack_struct(row)]


def _unpacked(packed: list[Any]) -> Row:
    name, raw = packed
    return unpack_struct(raw, _KINDS[name])
