"""A view: the tables of one cell as of a tick, which lanes decide on.

A lane does not decide on the newest tables. When it reads a backlog, they show the present and not the time of its
tick; and after a crash, they contain more than when it first decided a tick. So each lane has a view of each of its
cells, which advances with the ticks. A record counts by two conditions.

Its time: it counts from the first tick that begins at its time or later. The beginning of a tick is what matters,
because its frames are sent at the beginning, and records with a later time may still be under way. A node's agent
publishes an inventory before the first frame that refers to it. Owners, feeds and actuators have no such order: their
records count once they have a certain age, so that a replay, which has them in time, hardly ever decides differently.

Its offset: it counts only if the tables had been read that far when the tick was decided. The offsets are published
with each tick (:mod:`.offsets`), so the same records count when the tick is decided again. A record that came late
counts from the first tick decided after it came, and so it does in a replay of the same ticks.

The rows of a view are part of the lane's snapshot, so a restored lane starts with the same rows, whatever compaction
has deleted since.

Exceptions: records of an owner or actuator whose clock is more than a day ahead of the telemetry count at once, as
during the replay of an old recording. A tombstone has no event time, so it counts at once, too. And when a view starts,
the inventories that exist stand for older ones that compaction has deleted.
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
from flyball_contracts.topics import INVENTORY
from flyball_streams.engine.directory import Directory, Entry, Key, Place, Reader, Tombstone, insert_ordered, key_of
from flyball_streams.engine.fleet_index import FleetIndex
from flyball_streams.engine.offsets import NO_OFFSETS, as_read, from_start, latest, next_offset, within
from flyball_streams.engine.packing import pack_struct, unpack_struct

OUTCOMES_KEPT = 256
"""Outcomes that a view remembers as applied; older ones that are repeated after a restart are applied again."""
OTHER_CLOCK_NS = 86_400 * 1_000_000_000
ALL = ROWS
_RESPONSES = (Acknowledgement, Silence, Label, Readmission)
_CONCRETE: tuple[type[Row], ...] = (Inventory, WorkloadSpec, Pool, Signal, Outcome, *_RESPONSES)
_KINDS: dict[str, type[Row]] = {kind.__name__: kind for kind in _CONCRETE}


class View(FleetIndex, Reader):
    """The tables of one cell as of a tick, with rows of some ``kinds``; empty before the first :meth:`advance`.

    Rows of other cells are left out, except signals, which have no cell, and nodes and workloads that left this cell.
    ``age_ns`` is the age that records other than inventories must have at the end of a tick; at least one tick.
    ``offsets`` are the table offsets that count. ``base`` are the offsets when the lane was created: an older record
    stands for earlier records of its key that compaction has deleted.
    """

    def __init__(
        self,
        directory: Directory,
        cell: str,
        kinds: tuple[type[Row], ...] = (),
        *,
        base: TableOffsets = NO_OFFSETS,
        age_ns: int = 0,
    ) -> None:
        super().__init__()
        self._clear(Tables(OUTCOMES_KEPT))
        self.directory = directory
        self.cell = cell
        self.kinds = kinds or ALL
        self.base = base
        self.age_ns = age_ns
        self.offsets: TableOffsets = NO_OFFSETS
        self.time_ns = -1
        self._keys: set[Key] = set()
        self._pending: list[tuple[int, Row]] = []
        self._unread: dict[Place, list[Entry]] = {}
        self._removed: list[str] = []
        for entry in directory.entries():
            self.receive(entry)
        directory.subscribe(self)

    def receive(self, entry: Entry) -> None:
        """Keep an entry until the offsets of a tick include it."""
        if isinstance(entry.row, (*self.kinds, Tombstone)):
            insert_ordered(self._unread.setdefault(entry[:2], []), entry)

    def restart(self, topic: str, partition: int) -> None:
        """Note that the offsets of a partition start again from 0."""
        self.offsets = from_start(self.offsets, topic, partition)
        for entry in self._unread.pop((topic, partition), []):
            self._apply(entry, following=0)

    def inventory(self, node: str, boot_id: str, epoch: int) -> Inventory | None:
        """Inventory that a frame refers to, whatever its time."""
        return self.directory.inventory(node, boot_id, epoch)

    def advance(self, tick: Tick, offsets: TableOffsets | None = None) -> list[Outcome]:
        """Advance to the beginning of a tick; return the outcomes that count from it on, by time.

        Rows count up to ``offsets``, by default up to what was read. A view does not go back when its cell's clock is
        set back.
        """
        is_first, now = self.time_ns < 0, max(self.time_ns, tick.index * tick.period_ns)
        self.time_ns = now
        self._read(self.directory.offsets if offsets is None else offsets)
        if is_first:
            self._replace_compacted()
        if not self._pending:
            return []
        if not is_first and self._pending[0][0] > now and self._pending[-1][0] <= now + OTHER_CLOCK_NS:
            return []
        settled_ns = now - max(0, self.age_ns - tick.period_ns)
        due, pending = list[Row](), list[tuple[int, Row]]()
        nodes = set[str]()
        for at, row in self._pending:
            other_clock = at > now + OTHER_CLOCK_NS and isinstance(row, WorkloadSpec | Pool | Outcome | Response)
            replaces_compacted = is_first and isinstance(row, Inventory) and row.node not in nodes
            if at <= (now if isinstance(row, Inventory) else settled_ns) or other_clock or replaces_compacted:
                due.append(row)
                nodes |= {row.node} if isinstance(row, Inventory) else set()
            else:
                pending.append((at, row))
        self._pending = pending
        outcomes = [row for row in due if self._fold(row) and isinstance(row, Outcome)]
        return sorted(outcomes, key=lambda o: (o.time_ns, o.decision, o.id))

    def take_removed(self) -> list[str]:
        """Nodes whose inventories were removed since the last call and not added again.

        Only a view without inventories keeps these nodes.
        """
        removed, self._removed = self._removed, []
        return removed

    def state(self) -> dict[str, Any]:
        """State for a snapshot: rows, pending rows, the offsets that count, and nodes for :meth:`take_removed`."""
        rows: list[Row] = [
            *self.inventories.values(),
            *self.specs.values(),
            *self.pools.values(),
            *self.signals.values(),
        ]
        rows += [*self.tables.outcomes.values(), *self.tables.responses.values()]
        return {
            "time_ns": self.time_ns,
            "rows": [_pack_row(row) for row in rows],
            "pending": [_pack_row(row) for _, row in self._pending],
            "offsets": self.offsets,
            "removed": self._removed,
        }

    def load(self, state: dict[str, Any]) -> None:
        """Replace the state by that of a snapshot, and keep the directory's entries beyond it.

        A partition whose read offset is below that of the snapshot was recreated: all of its entries count as beyond.
        """
        self._clear(Tables(OUTCOMES_KEPT))
        self._keys, self._pending, self._unread, self._removed = set(), [], {}, list(state["removed"])
        for row in map(_unpack_row, state["rows"]):
            self._keys.add(key_of(row))
            self._fold(row)
        self.time_ns = state["time_ns"]
        for row in map(_unpack_row, state["pending"]):
            self._schedule(row)
        self.offsets = as_read(state["offsets"])
        for topic, offsets in self.offsets.items():
            for partition, offset in enumerate(offsets):
                if offset > next_offset(self.directory.offsets, topic, partition):
                    self.offsets = from_start(self.offsets, topic, partition)
        for entry in self.directory.entries():
            if not 0 <= entry.offset < next_offset(self.offsets, entry.topic, entry.partition):
                self.receive(entry)

    def _read(self, offsets: TableOffsets) -> None:
        """Apply entries up to these offsets, or up to what was read if that is less."""
        offsets = within(offsets, self.directory.offsets)
        for place, unread in list(self._unread.items()):
            limit = next_offset(offsets, *place)
            count = bisect_left(unread, limit, key=lambda entry: entry.offset)
            for entry in unread[:count]:
                self._apply(entry, limit)
            del unread[:count]
            if not unread:
                del self._unread[place]
        self.offsets = latest(self.offsets, offsets)

    def _replace_compacted(self) -> None:
        """Apply the oldest known record of each key that has none yet; it stands for compacted ones."""
        known = {key_of(row) for _, row in self._pending}
        for entry in self._before_base():
            if not isinstance(entry.row, Tombstone) and (key := key_of(entry.row)) not in known:
                known.add(key)
                self._apply(entry, following=0)

    def _before_base(self) -> Iterator[Entry]:
        for place, unread in sorted(self._unread.items()):
            yield from (entry for entry in unread if entry.offset < next_offset(self.base, *place))

    def _apply(self, entry: Entry, following: int) -> None:
        """Apply an entry; entries of its partition before offset ``following`` count, too."""
        row = entry.row
        if isinstance(row, Tombstone):
            self._drop(*row)
            silences = row.topic == INVENTORY.name and Inventory not in self.kinds
            if silences and not self.directory.is_back(entry, following):
                self._removed.append(row.key)
            self._pending = [(at, other) for at, other in self._pending if key_of(other)[:2] != row]
        else:
            self._schedule(row)

    def _schedule(self, row: Row) -> None:
        """Keep a row until its time comes, if it belongs to this view."""
        place = key_of(row)
        if not isinstance(row, Signal) and row.cell == self.cell:
            self._keys.add(place)
        elif not isinstance(row, Signal) and place not in self._keys:
            return
        insort(self._pending, (time_of(row), row), key=_time_of_entry)


def _time_of_entry(entry: tuple[int, Row]) -> int:
    return entry[0]


def _pack_row(row: Row) -> list[Any]:
    return [type(row).__name__, pack_struct(row)]


def _unpack_row(packed: list[Any]) -> Row:
    name, raw = packed
    return unpack_struct(raw, _KINDS[name])
