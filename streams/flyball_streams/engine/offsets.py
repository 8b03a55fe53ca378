"""How far the tables were read: their offsets, which travel with each tick that was decided on them.

What a table says depends on when it is read, so a tick that is decided again after a crash could be decided on other
records. Node lanes write down in each tick how far the tables had been read by then. Lanes behind them let no record
count for the tick that lies beyond, and write down in turn what they used. So what they say follows from the log alone.
"""

from collections.abc import Iterable, Mapping

from flyball_contracts.records import TableOffsets

NOWHERE: TableOffsets = {}


def reach(offsets: TableOffsets, topic: str, partition: int) -> int:
    """First offset of a partition that was not read."""
    known = offsets.get(topic, ())
    return known[partition] if partition < len(known) else 0


def farther(a: TableOffsets, b: TableOffsets) -> TableOffsets:
    """Return the farther of two in each partition."""
    if a == b or not b:
        return a
    if not a:
        return b
    return {topic: _most(a.get(topic, ()), b.get(topic, ())) for topic in sorted({*a, *b})}


def within(asked: TableOffsets, read: TableOffsets) -> TableOffsets:
    """Return what of ``asked`` has been read."""
    if asked == read:
        return asked
    return {
        topic: tuple(min(offset, reach(read, topic, partition)) for partition, offset in enumerate(offsets))
        for topic, offsets in asked.items()
    }


def from_start(offsets: TableOffsets, topic: str, partition: int) -> TableOffsets:
    """Return the offsets with one partition at its beginning."""
    changed = [0 if i == partition else offset for i, offset in enumerate(offsets.get(topic, ()))]
    return {**offsets, topic: tuple(changed)}


def as_offsets(next_of: Mapping[tuple[str, int], int]) -> TableOffsets:
    """Return the offsets of partitions, by topic and partition."""
    topics: dict[str, list[int]] = {}
    for (topic, partition), offset in sorted(next_of.items()):
        known = topics.setdefault(topic, [])
        known += [0] * (partition + 1 - len(known))
        known[partition] = offset
    return {topic: tuple(known) for topic, known in topics.items()}


def as_read(state: Mapping[str, Iterable[int]]) -> TableOffsets:
    """Return the offsets in a snapshot."""
    return {topic: tuple(offsets) for topic, offsets in state.items()}


def _most(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    if len(a) < len(b):
        a, b = b, a
    return (*map(max, a, b), *a[len(b) :])
