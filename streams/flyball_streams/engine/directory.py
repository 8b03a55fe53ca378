"""What is known of nodes, workloads, zones and decisions: the tables, folded, and as they were at a tick.

The tables are folded by one rule (:mod:`flyball_contracts.tables`): the newest record of a key counts, by its own time,
in whatever order partitions are read. A lane does not decide on the newest tables: when it reads a backlog, they tell
how things are now, not how they were at its tick. So each lane has a view of each of its cells, which moves with the
ticks: a record counts from the first tick on that begins at its time or after it.

Why a replay decides on the same tables. What a view has taken in is part of the lane's snapshot, so a lane that goes on
from one starts with the same rows, whatever compaction has deleted since. What it takes in from there on depends on the
times in the records and in the ticks alone, as long as a record is there when the first tick that it counts for closes:
and that is so. A step asks the broker where the tables end and waits for that, after the messages that close a tick
have come. A node's agent sends an inventory before the first frame that names it, so who has a tick's frames, or what
lanes said about them, has the inventories of that time. Owners, feeds and actuators are bound by no such order; their
records are on the broker some milliseconds after their time, and a tick closes when its frames have come. That is why a
tick looks at its beginning, not at its end: its frames are sent at the beginning, and what is stamped later may be on
its way still. A record that comes later than that counts from the next tick on; a replay, which has it in time, may
then decide otherwise. It says so under the same ids, for these do not depend on the answer.

Two clocks are not compared. An owner or actuator whose clock is more than a day ahead of the telemetry lives in another
time, as beside a recording that is played: what it says counts at once. A tombstone has no event time, so that it
counts at once too. And the inventories that were known when a view began stand for what compaction deleted before.
"""

from bisect import insort
from typing import Any, TypeAlias
from weakref import WeakSet

from flyball_contracts.records import Inventory, Outcome, Record, Signal, Tick, WorkloadSpec
from flyball_contracts.tables import MOST_OUTCOMES, Row, Tables, supersedes, time_of
from flyball_contracts.topics import INVENTORY, OUTCOMES, SIGNALS, WORKLOADS
from flyball_streams.engine.known import Held as Held, Known, Replica as Replica
from flyball_streams.engine.packing import pack_struct, unpack_struct

VERSIONS_KEPT = 64
"""Records of a key that are kept for views whose ticks are behind, the newest of them."""
OUTCOMES_HEEDED = 256
"""Outcomes that a view knows to be heeded; older ones, said again after a restart, are heeded again."""
OTHER_CLOCK_NS = 86_400 * 1_000_000_000
Key: TypeAlias = tuple[str, str, str]
_KINDS: dict[str, type[Row]] = {kind.__name__: kind for kind in (Inventory, WorkloadSpec, Signal, Outcome)}


class Directory(Known):
    """The newest of everything, and the records that views take in when their ticks come."""

    def __init__(self) -> None:
        super().__init__()
        self._history: dict[Key, list[Row]] = {}
        self._outcomes: dict[str, list[Outcome]] = {}
        self._epochs: dict[str, dict[tuple[str, int], Inventory]] = {}
        self._deleted: set[tuple[str, str]] = set()
        self._views: WeakSet[View] = WeakSet()

    def apply(self, record: Record) -> bool:
        """Fold one record in; say whether it was of a kind that belongs here.

        ``version`` rises only when that changes something: agents say the same again every half minute.
        """
        if isinstance(record, Outcome):
            if record in self._outcomes.setdefault(record.decision, []):
                return True
            self._outcomes[record.decision].append(record)
            while len(self._outcomes) > MOST_OUTCOMES:
                del self._outcomes[next(iter(self._outcomes))]
        elif isinstance(record, Inventory | WorkloadSpec | Signal):
            if not self._note(record):
                return True
            self._fold(record)
        else:
            return False
        for view in self._views:
            view.apply(record)
        return True

    def forget(self, topic: str, key: str) -> None:
        """Take a tombstone in: what is known of a message key of a topic is gone."""
        self._drop(topic, key)
        for place in [place for place in self._history if place[:2] == (topic, key)]:
            del self._history[place]
        self._deleted.add((topic, key))
        for view in self._views:
            view.forget(topic, key)

    def view(self, cell: str, *kinds: type[Row]) -> "View":
        """View of a cell that moves with its ticks; of ``kinds`` alone where they are given."""
        view = View(self, cell, kinds or (Inventory, WorkloadSpec, Signal, Outcome))
        self._views.add(view)
        return view

    def inventory(self, node: str, boot_id: str, epoch: int) -> Inventory | None:
        """Inventory that a frame refers to, or ``None`` while it is not known."""
        newest = self.inventories.get(node)
        if newest is None or (newest.epoch == epoch and newest.boot_id == boot_id):
            return newest
        return self._epochs[node].get((boot_id, epoch))

    def records(self) -> list[Row]:
        """Everything that is known, of each key in the order in which it was told."""
        rows = [row for history in self._history.values() for row in history]
        return [*rows, *(outcome for told in self._outcomes.values() for outcome in told)]

    def is_deleted(self, row: Row) -> bool:
        """Whether a tombstone was the last that was heard of a row's key."""
        return _place(row)[:2] in self._deleted

    def _note(self, record: Inventory | WorkloadSpec | Signal) -> bool:
        """Keep a record for views; whether it was not known yet."""
        place = _place(record)
        history = self._history.setdefault(place, [])
        if record in history:
            return False
        history.append(record)
        if len(history) > VERSIONS_KEPT:
            oldest = history[0]
            for row in history:
                oldest = row if supersedes(oldest, row) else oldest
            history.remove(oldest)
        self._deleted.discard(place[:2])
        if isinstance(record, Inventory):
            epochs = self._epochs.setdefault(record.node, {})
            same = epochs.get((record.boot_id, record.epoch))
            if same is None or supersedes(record, same):
                epochs[record.boot_id, record.epoch] = record
            while len(epochs) > VERSIONS_KEPT:
                del epochs[min(epochs, key=lambda e: (epochs[e].time_ns, e))]
        return True


class View(Directory):
    """One cell as it was at a tick, by the records of some kinds; :meth:`advance` moves it, and before it is empty.

    Rows of other cells are not in it, but for curves, which have no cell, and nodes and workloads that left this one.
    """

    def __init__(self, directory: Directory, cell: str, kinds: tuple[type[Row], ...]) -> None:
        super().__init__()
        self._clear(Tables(OUTCOMES_HEEDED))
        self.directory = directory
        self.cell = cell
        self.kinds = kinds
        self.time_ns = -1
        self._mine: set[Key] = set()
        self._pending: list[tuple[int, Row]] = []
        for row in directory.records():
            self.apply(row)

    def apply(self, record: Record) -> bool:
        """Note a record until its time comes; whether it concerns this view."""
        if not isinstance(record, self.kinds):
            return False
        row: Row = record
        place = _place(row)
        if not isinstance(row, Signal) and row.cell == self.cell:
            self._mine.add(place)
        elif not isinstance(row, Signal) and place not in self._mine:
            return False
        insort(self._pending, (time_of(row), row), key=_at)
        return True

    def forget(self, topic: str, key: str) -> None:
        """Take a tombstone in."""
        self._drop(topic, key)
        self._pending = [(at, row) for at, row in self._pending if _place(row)[:2] != (topic, key)]

    def inventory(self, node: str, boot_id: str, epoch: int) -> Inventory | None:
        """Inventory that a frame refers to, whatever its time."""
        return self.directory.inventory(node, boot_id, epoch)

    def advance(self, tick: Tick) -> list[Outcome]:
        """Move to the beginning of a tick; return the outcomes that count from it on, by their times.

        A view stays where it is when its cell's clock is set back.
        """
        begins, now = self.time_ns < 0, max(self.time_ns, tick.index * tick.period_ns)
        self.time_ns = now
        if not self._pending:
            return []
        if not begins and self._pending[0][0] > now and self._pending[-1][0] <= now + OTHER_CLOCK_NS:
            return []
        due, pending = list[Row](), list[tuple[int, Row]]()
        nodes = set[str]()
        for at, row in self._pending:
            foreign = at > now + OTHER_CLOCK_NS and isinstance(row, WorkloadSpec | Outcome)
            stands_for_older = begins and isinstance(row, Inventory) and row.node not in nodes
            if at <= now or foreign or stands_for_older:
                due.append(row)
                nodes |= {row.node} if isinstance(row, Inventory) else set()
            else:
                pending.append((at, row))
        self._pending = pending
        outcomes = [row for row in due if self._fold(row) and isinstance(row, Outcome)]
        return sorted(outcomes, key=lambda o: (o.time_ns, o.decision, o.id))

    def state(self) -> dict[str, Any]:
        """State for a snapshot: rows and what waits for its time."""
        rows: list[Row] = [*self.inventories.values(), *self.specs.values(), *self.signals.values()]
        rows += self.tables.outcomes.values()
        return {
            "time_ns": self.time_ns,
            "rows": [_packed(row) for row in rows],
            "pending": [_packed(row) for _, row in self._pending],
        }

    def load(self, state: dict[str, Any]) -> None:
        """Take on the state of a snapshot, then what the directory knows beyond it."""
        self._clear(Tables(OUTCOMES_HEEDED))
        self._mine, self._pending = set(), []
        for row in map(_unpacked, state["rows"]):
            if not self.directory.is_deleted(row):
                self._mine.add(_place(row))
                self._fold(row)
        waiting = [row for row in map(_unpacked, state["pending"]) if not self.directory.is_deleted(row)]
        self.time_ns = state["time_ns"]
        for row in waiting:
            self.apply(row)
        for row in self.directory.records():
            if row not in waiting and (time_of(row) > self.time_ns or self.tables.takes(row)):
                self.apply(row)


def _at(entry: tuple[int, Row]) -> int:
    return entry[0]


def _place(row: Row) -> Key:
    """Topic and message key of a row, and what else its key in the table has."""
    if isinstance(row, Inventory):
        return INVENTORY.name, row.node, ""
    if isinstance(row, WorkloadSpec):
        return WORKLOADS.name, row.workload, ""
    if isinstance(row, Signal):
        return SIGNALS.name, row.zone, row.kind
    return OUTCOMES.name, row.target, row.decision


def _packed(row: Row | Record) -> list[Any]:
    return [type(row).__name__, pack_struct(row)]


def _unpacked(packed: list[Any]) -> Row:
    name, raw = packed
    return unpack_struct(raw, _KINDS[name])
