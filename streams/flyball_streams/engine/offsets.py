"""Table offsets: how far the tables had been read when a tick was decided; they are published with the tick.

The contents of a table depend on when it is read, so a tick that is decided again after a crash could be decided on
other records. Node lanes publish with each tick how far the tables had been read. Downstream lanes use no record beyond
these offsets for the tick, and publish in turn the offsets they used. So their output follows from the log alone.
"""

from collections.abc import Iterable, Mapping

from flyball_contracts.records import TableOffsets

NO_OFFSETS: TableOffsets = {}


def next_offset(offsets: TableOffsets, topic: str, partition: int) -> int:
    """Return the first unread offset of a partition."""
    following = offsets.get(topic, ())
    return following[partition] if partition < len(following) else 0


def latest(a: TableOffsets, b: TableOffsets) -> TableOffsets:
    """Return the higher offset of two in each partition."""
    if a == b or not b:
        return a
    if not a:
        return b
    return {topic: _most(a.get(topic, ()), b.get(topic, ())) for topic in sorted({*a, *b})}


def within(wanted: TableOffsets, read: TableOffsets) -> TableOffsets:
    """Return ``wanted``, limited to offsets that have been ``read``."""
    if wanted == read:
        return wanted
    return {
        topic: tuple(min(offset, next_offset(read, topic, partition)) for partition, offset in enumerate(offsets))
        for topic, offsets in wanted.items()
    }


def from_start(offsets: TableOffsets, topic: str, partition: int) -> TableOffsets:
    """Return the offsets with one partition reset to 0."""
    changed = [0 if i == partition else offset for i, offset in enumerate(offsets.get(topic, ()))]
    return {**offsets, topic: tuple(changed)}


def as_offsets(next_of: Mapping[tuple[str, int], int]) -> TableOffsets:
    """Return offsets by topic from the next offset of each (topic, partition)."""
    topics: dict[str, list[int]] = {}
    for (topic, partition), offset in sorted(next_of.items()):
        offsets = topics.setdefault(topic, [])
        offsets += [0] * (partition + 1 - len(offsets))
        offsets[partition] = offset
    return {topic: tuple(offsets) for topic, offsets in topics.items()}


def as_read(state: Mapping[str, Iterable[int]]) -> TableOffsets:
    """Return the offsets from a snapshot, with tuples for lists."""
    return {topic: tuple(offsets) for topic, offsets in state.items()}


def _most(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    if len(a) < len(b):
        a, b = b, a
    return (*map(max, a, b), *a[len(b) :])
