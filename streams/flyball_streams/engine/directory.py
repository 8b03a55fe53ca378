"""The materialized tables of nodes, workloads, zones and decisions, and the log entries that feed views of them.

Tables are folded by one rule (:mod:`flyball_contracts.tables`): the newest record of a key counts, by its own time, in
whatever order partitions are read. Lanes do not decide on the newest tables but on views (:mod:`.view`), which advance
with their ticks. The directory keeps the entries for them, with their offsets.
"""

from bisect import insort
from typing import NamedTuple, Protocol, TypeAlias
from weakref import WeakSet

from flyball_contracts.records import Inventory, Outcome, Pool, Record, Signal, TableOffsets, WorkloadSpec
from flyball_contracts.tables import MOST_OUTCOMES, ROWS, Row, supersedes
from flyball_contracts.topics import INVENTORY, OUTCOMES, POOLS, RESPONSES, SIGNALS, WORKLOADS
from flyball_streams.engine.fleet_index import FleetIndex, Held as Held, Replica as Replica
from flyball_streams.engine.offsets import as_offsets

VERSIONS_KEPT = 64
MOST_VERSIONS = 8192
"""At least ``VERSIONS_KEPT`` of the newest records of a key are kept for frames and ticks that are behind. A small cell
keeps more: all keys share :data:`MOST_VERSIONS`, as a node's inventory may change often within a backlog."""
BEFORE_ALL = -1
"""Offset of a record from a topic that was recreated since: it precedes all others."""
Key: TypeAlias = tuple[str, str, str]
Place: TypeAlias = tuple[str, int]


class Tombstone(NamedTuple):
    """The deletion of a message key of a topic."""

    topic: str
    key: str


class Entry(NamedTuple):
    """One record or tombstone, with its topic, partition and offset."""

    topic: str
    partition: int
    offset: int
    row: Row | Tombstone


class Reader(Protocol):
    """A subscriber: receives each new entry, and each partition that restarts because its topic was recreated."""

    def receive(self, entry: Entry) -> None:
        """Receive a new entry."""
        ...

    def restart(self, topic: str, partition: int) -> None:
        """Note that the offsets of a partition start again from 0."""
        ...


class Directory(FleetIndex):
    """The newest tables, and the entries that views apply when their ticks come."""

    def __init__(self) -> None:
        super().__init__()
        self._entries: dict[Key, list[Entry]] = {}
        self._outcomes: dict[str, list[Entry]] = {}
        self._epochs: dict[str, dict[tuple[str, int], Inventory]] = {}
        self._next: dict[Place, int] = {}
        self._offsets: TableOffsets | None = None
        self._readers: WeakSet[Reader] = WeakSet()

    @property
    def offsets(self) -> TableOffsets:
        """First unread offset of each table partition."""
        if self._offsets is None:
            self._offsets = as_offsets(self._next)
        return self._offsets

    def read(self, topic: str, partition: int, following: int) -> None:
        """Note that a partition was read up to an offset; a lower one than before means a recreated topic."""
        before = self._next.get((topic, partition), 0)
        if following == before:
            return
        self._next[topic, partition], self._offsets = following, None
        if following < before:
            self._reset_partition(topic, partition)

    def apply(self, record: Record, partition: int = 0, offset: int | None = None) -> bool:
        """Fold one record in; return whether it is of a kind that belongs in the tables.

        Without an ``offset`` it counts as the next one of its partition. ``version`` rises only if the record changes
        something: agents repeat their inventories every half minute.
        """
        if not isinstance(record, ROWS):
            return False
        topic = key_of(record)[0]
        entry = Entry(topic, partition, self._place(topic, partition, offset), record)
        if not self._note(entry, record):
            return True
        if not isinstance(record, Outcome):
            self._fold(record)
        self._notify(entry)
        return True

    def forget(self, topic: str, key: str, partition: int = 0, offset: int | None = None) -> None:
        """Apply a tombstone: delete a message key of a topic."""
        entry = Entry(topic, partition, self._place(topic, partition, offset), Tombstone(topic, key))
        entries = self._entries.setdefault((topic, key, ""), [])
        entries.append(entry)
        while len(entries) > self._versions_kept():
            _drop_oldest(entries)
        self._drop(topic, key)
        self._notify(entry)

    def is_back(self, removed: Entry, following: int) -> bool:
        """Whether a node was added again after this tombstone of its inventory, before offset ``following``."""
        key = removed.row.key if isinstance(removed.row, Tombstone) else ""
        return any(
            entry[:2] == removed[:2] and removed.offset < entry.offset < following and isinstance(entry.row, Inventory)
            for entry in self._entries.get((INVENTORY.name, key, ""), ())
        )

    def restore_inventory(self, inventory: Inventory) -> None:
        """Add an inventory from a snapshot: frames may refer to it although compaction has deleted it."""
        self._fold(inventory)
        self._note_epoch(inventory)

    def subscribe(self, reader: Reader) -> None:
        """Send new entries to a reader from now on."""
        self._readers.add(reader)

    def inventory(self, node: str, boot_id: str, epoch: int) -> Inventory | None:
        """Inventory that a frame refers to, or ``None`` while it is unknown."""
        newest = self.inventories.get(node)
        if newest is None or (newest.epoch == epoch and newest.boot_id == boot_id):
            return newest
        return self._epochs[node].get((boot_id, epoch))

    def entries(self) -> list[Entry]:
        """All entries that are kept, in log order."""
        kept = [
            entry for entries in (self._entries, self._outcomes) for versions in entries.values() for entry in versions
        ]
        return sorted(kept, key=lambda e: (e.topic, e.partition, e.offset))

    def _place(self, topic: str, partition: int, offset: int | None) -> int:
        """Return the offset of an entry, and note that it was read."""
        following = self._next.get((topic, partition), 0)
        offset = following if offset is None else offset
        self.read(topic, partition, max(following, offset + 1))
        return offset

    def _notify(self, entry: Entry) -> None:
        for reader in self._readers:
            reader.receive(entry)

    def _note(self, entry: Entry, record: Row) -> bool:
        """Keep an entry for views; return whether it is new."""
        if isinstance(record, Outcome):
            entries = self._outcomes.setdefault(record.decision, [])
        else:
            entries = self._entries.setdefault(key_of(record), [])
        if any(known.row == record for known in entries) and not self._is_deleted(record, entries):
            return False
        entries.append(entry)
        if isinstance(record, Outcome):
            while len(self._outcomes) > MOST_OUTCOMES:
                del self._outcomes[next(iter(self._outcomes))]
        else:
            while len(entries) > self._versions_kept():
                _drop_oldest(entries)
        if isinstance(record, Inventory):
            self._note_epoch(record)
        return True

    def _versions_kept(self) -> int:
        return max(VERSIONS_KEPT, MOST_VERSIONS // max(1, len(self._entries)))

    def _is_deleted(self, record: Row, entries: list[Entry]) -> bool:
        """Whether a tombstone came after this record of a key."""
        topic, key, _ = key_of(record)
        tombstones = [e.offset for e in self._entries.get((topic, key, ""), ()) if isinstance(e.row, Tombstone)]
        return bool(tombstones) and tombstones[-1] > max((e.offset for e in entries if e.row == record), default=-1)

    def _note_epoch(self, record: Inventory) -> None:
        epochs = self._epochs.setdefault(record.node, {})
        same = epochs.get((record.boot_id, record.epoch))
        if same is None or supersedes(record, same):
            epochs[record.boot_id, record.epoch] = record
        while len(epochs) > self._versions_kept():
            del epochs[min(epochs, key=lambda e: (epochs[e].time_ns, e))]

    def _reset_partition(self, topic: str, partition: int) -> None:
        for entries in (self._entries, self._outcomes):
            for versions in entries.values():
                versions[:] = [e._replace(offset=BEFORE_ALL) if e[:2] == (topic, partition) else e for e in versions]
        for reader in self._readers:
            reader.restart(topic, partition)


def key_of(row: Row) -> Key:
    """Topic and message key of a row, and the rest of its key in the table."""
    if isinstance(row, Inventory):
        return INVENTORY.name, row.node, ""
    if isinstance(row, WorkloadSpec):
        return WORKLOADS.name, row.workload, ""
    if isinstance(row, Pool):
        return POOLS.name, row.pool, ""
    if isinstance(row, Signal):
        return SIGNALS.name, row.zone, row.kind
    if isinstance(row, Outcome):
        return OUTCOMES.name, row.target, row.decision
    return RESPONSES.name, row.key, ""


def insert_ordered(entries: list[Entry], entry: Entry) -> None:
    """Insert an entry among others of its partition, by offset."""
    if entries and entry.offset < entries[-1].offset:
        insort(entries, entry, key=lambda e: e.offset)
    else:
        entries.append(entry)


def _drop_oldest(entries: list[Entry]) -> None:
    """Drop the oldest record of a key, by its own time; a tombstone is older than the records after it."""
    oldest = entries[0]
    for entry in entries[1:]:
        row, oldest_row = entry.row, oldest.row
        if isinstance(oldest_row, Tombstone):
            break
        if not isinstance(row, Tombstone) and supersedes(oldest_row, row):
            oldest = entry
    entries.remove(oldest)
