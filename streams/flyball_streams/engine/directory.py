"""What is known of nodes, workloads, zones and decisions: the tables, folded, and what views of them take in.

The tables are folded by one rule (:mod:`flyball_contracts.tables`): the newest record of a key counts, by its own time,
in whatever order partitions are read. Lanes do not decide on the newest tables but on views (:mod:`.view`), which move
with their ticks. The directory keeps for them what was read, with its places in the log.
"""

from bisect import insort
from typing import NamedTuple, Protocol, TypeAlias
from weakref import WeakSet

from flyball_contracts.records import Inventory, Outcome, Pool, Record, Signal, TableOffsets, WorkloadSpec
from flyball_contracts.tables import MOST_OUTCOMES, ROWS, Row, supersedes
from flyball_contracts.topics import INVENTORY, OUTCOMES, POOLS, RESPONSES, SIGNALS, WORKLOADS
from flyball_streams.engine.known import Held as Held, Known, Replica as Replica
from flyball_streams.engine.offsets import as_offsets

VERSIONS_KEPT = 64
MOST_VERSIONS = 8192
"""Records of a key that are kept for frames and ticks that are behind, the newest of them; and more in a small cell, as
many as :data:`MOST_VERSIONS` shared among all keys: a node's inventory may change that often within a backlog."""
OF_BEFORE = -1
"""Offset of a record that was read of a topic which was made again since: it is before all others."""
Key: TypeAlias = tuple[str, str, str]
Place: TypeAlias = tuple[str, int]


class Tombstone(NamedTuple):
    """What is known of a message key of a topic is gone."""

    topic: str
    key: str


class Entry(NamedTuple):
    """One record or tombstone, and where it lies in its topic."""

    topic: str
    partition: int
    offset: int
    told: Row | Tombstone


class Reader(Protocol):
    """Whoever hears of each new entry, and of a partition that begins anew because its topic was made again."""

    def hear(self, entry: Entry) -> None:
        """Take an entry."""
        ...

    def restart(self, topic: str, partition: int) -> None:
        """Take note that offsets begin anew."""
        ...


class Directory(Known):
    """The newest of everything, and the entries that views take in when their ticks come."""

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
        """How far the tables were read."""
        if self._offsets is None:
            self._offsets = as_offsets(self._next)
        return self._offsets

    def read(self, topic: str, partition: int, following: int) -> None:
        """Take note that a partition was read up to an offset; a lower one than before: its topic was made again."""
        before = self._next.get((topic, partition), 0)
        if following == before:
            return
        self._next[topic, partition], self._offsets = following, None
        if following < before:
            self._begin_anew(topic, partition)

    def apply(self, record: Record, partition: int = 0, offset: int | None = None) -> bool:
        """Fold one record in; say whether it was of a kind that belongs here.

        Without its ``offset`` in a partition of its topic it counts as the next one there. ``version`` rises only when
        it changes something: agents say the same again every half minute.
        """
        if not isinstance(record, ROWS):
            return False
        topic = key_of(record)[0]
        entry = Entry(topic, partition, self._place(topic, partition, offset), record)
        if not self._note(entry, record):
            return True
        if not isinstance(record, Outcome):
            self._fold(record)
        self._tell(entry)
        return True

    def forget(self, topic: str, key: str, partition: int = 0, offset: int | None = None) -> None:
        """Take a tombstone in: what is known of a message key of a topic is gone."""
        entry = Entry(topic, partition, self._place(topic, partition, offset), Tombstone(topic, key))
        told = self._entries.setdefault((topic, key, ""), [])
        told.append(entry)
        while len(told) > self._versions_kept():
            _drop_oldest(told)
        self._drop(topic, key)
        self._tell(entry)

    def remember(self, inventory: Inventory) -> None:
        """Take an inventory that frames may name, though compaction may have deleted it; views know it already."""
        self._fold(inventory)
        self._note_epoch(inventory)

    def follow(self, reader: Reader) -> None:
        """Tell a reader what is new from now on."""
        self._readers.add(reader)

    def inventory(self, node: str, boot_id: str, epoch: int) -> Inventory | None:
        """Inventory that a frame refers to, or ``None`` while it is not known."""
        newest = self.inventories.get(node)
        if newest is None or (newest.epoch == epoch and newest.boot_id == boot_id):
            return newest
        return self._epochs[node].get((boot_id, epoch))

    def entries(self) -> list[Entry]:
        """Everything that is kept, in the order of the log."""
        kept = [entry for told in (self._entries, self._outcomes) for of in told.values() for entry in of]
        return sorted(kept, key=lambda e: (e.topic, e.partition, e.offset))

    def _place(self, topic: str, partition: int, offset: int | None) -> int:
        """Offset of an entry, which counts as read from now on."""
        following = self._next.get((topic, partition), 0)
        offset = following if offset is None else offset
        self.read(topic, partition, max(following, offset + 1))
        return offset

    def _tell(self, entry: Entry) -> None:
        for reader in self._readers:
            reader.hear(entry)

    def _note(self, entry: Entry, record: Row) -> bool:
        """Keep an entry for views; whether it says something new."""
        if isinstance(record, Outcome):
            told = self._outcomes.setdefault(record.decision, [])
        else:
            told = self._entries.setdefault(key_of(record), [])
        if any(known.told == record for known in told) and not self._is_deleted(record, told):
            return False
        told.append(entry)
        if isinstance(record, Outcome):
            while len(self._outcomes) > MOST_OUTCOMES:
                del self._outcomes[next(iter(self._outcomes))]
        else:
            while len(told) > self._versions_kept():
                _drop_oldest(told)
        if isinstance(record, Inventory):
            self._note_epoch(record)
        return True

    def _versions_kept(self) -> int:
        return max(VERSIONS_KEPT, MOST_VERSIONS // max(1, len(self._entries)))

    def _is_deleted(self, record: Row, told: list[Entry]) -> bool:
        """Whether a tombstone came after what was told of a key."""
        topic, key, _ = key_of(record)
        graves = [e.offset for e in self._entries.get((topic, key, ""), ()) if isinstance(e.told, Tombstone)]
        return bool(graves) and graves[-1] > max((e.offset for e in told if e.told == record), default=-1)

    def _note_epoch(self, record: Inventory) -> None:
        epochs = self._epochs.setdefault(record.node, {})
        same = epochs.get((record.boot_id, record.epoch))
        if same is None or supersedes(record, same):
            epochs[record.boot_id, record.epoch] = record
        while len(epochs) > self._versions_kept():
            del epochs[min(epochs, key=lambda e: (epochs[e].time_ns, e))]

    def _begin_anew(self, topic: str, partition: int) -> None:
        for told in (self._entries, self._outcomes):
            for of in told.values():
                of[:] = [e._replace(offset=OF_BEFORE) if e[:2] == (topic, partition) else e for e in of]
        for reader in self._readers:
            reader.restart(topic, partition)


def key_of(row: Row) -> Key:
    """Topic and message key of a row, and what else its key in the table has."""
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


def in_order(entries: list[Entry], entry: Entry) -> None:
    """Put an entry in its place among others of its partition."""
    if entries and entry.offset < entries[-1].offset:
        insort(entries, entry, key=lambda e: e.offset)
    else:
        entries.append(entry)


def _drop_oldest(told: list[Entry]) -> None:
    """Drop the oldest record of a key, by its own time; a tombstone is older than what came after it."""
    oldest = told[0]
    for entry in told[1:]:
        mine, theirs = entry.told, oldest.told
        if isinstance(theirs, Tombstone):
            break
        if not isinstance(mine, Tombstone) and supersedes(theirs, mine):
            oldest = entry
    told.remove(oldest)
