"""Lane states as messages: compressed, split to the size of a message, and reassembled."""

import mmap
from collections.abc import Mapping
from contextlib import closing

import cramjam
import msgspec

from flyball_contracts.records import Snapshot

PART_BYTES = 512 * 1024
MOST_STATE_BYTES = 1 << 30
"""Larger states are neither sent nor read: a message of 200 kB can unpack to gigabytes."""
CompressionError = cramjam.DecompressionError
Key = tuple[str, int, tuple[tuple[str, str], ...]]
"""Lane, partition and ids of the source topics."""


def cut(
    lane: str,
    partition: int,
    engine: str,
    time_ns: int,
    offsets: Mapping[str, int],
    state: bytes,
    topics: Mapping[str, str] | None = None,
) -> list[Snapshot]:
    """Split a snapshot into parts; ``state`` is what the lane returned, ``topics`` are the ids of its source topics.

    Raises ``ValueError`` for a state of more than ``MOST_STATE_BYTES``.
    """
    if len(state) > MOST_STATE_BYTES:
        raise ValueError(f"the state has {len(state)} bytes; a snapshot holds at most {MOST_STATE_BYTES}")
    packed = bytes(cramjam.zstd.compress(state, 1))  # padded arrays are mostly empty
    parts = [packed[i : i + PART_BYTES] for i in range(0, len(packed), PART_BYTES)]
    return [
        Snapshot(
            lane=lane,
            partition=partition,
            engine=engine,
            time_ns=time_ns,
            offsets=dict(offsets),
            state=part,
            part=i,
            parts=len(parts),
            topics=dict(topics or {}),
        )
        for i, part in enumerate(parts)
    ]


def state_of(snapshot: Snapshot) -> bytes:
    """State of a reassembled snapshot, as the lane returned it.

    Raises :data:`CompressionError` if it is damaged or unpacks to more than ``MOST_STATE_BYTES``. The buffer has that
    size, but its pages take memory only when they are written.
    """
    with closing(mmap.mmap(-1, MOST_STATE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)) as room:
        try:
            return room[: cramjam.zstd.decompress_into(snapshot.state, room)]
        except CompressionError as error:
            most = f"{MOST_STATE_BYTES / 2**20:g} MiB"
            raise CompressionError(f"it is damaged or unpacks to more than {most}: {error}") from error


class SnapshotShelf:
    """Keeps, for each lane partition, the complete snapshot that includes the most messages.

    Parts are in several partitions and come in any order. The newest snapshot is the one with the highest offsets, as
    the clocks of two workers may differ. Snapshots of topics with other ids, deleted since, are kept apart.
    """

    def __init__(self) -> None:
        self._whole: dict[Key, Snapshot] = {}
        self._parts: dict[Key, dict[int, dict[int, Snapshot]]] = {}

    def put(self, part: Snapshot) -> None:
        """Add one part; parts of superseded snapshots are dropped."""
        key = (part.lane, part.partition, tuple(sorted(part.topics.items())))
        whole = self._whole.get(key)
        if not 0 <= part.part < part.parts or (whole is not None and _reach(part) < _reach(whole)):
            return
        by_time = self._parts.setdefault(key, {})
        parts = by_time.setdefault(part.time_ns, {})
        parts[part.part] = part
        if len(parts) < part.parts:
            return
        state = b"".join(parts[i].state for i in range(part.parts))
        self._whole[key] = msgspec.structs.replace(part, state=state, part=0, parts=1)
        newer = {
            t: p for t, p in by_time.items() if t != part.time_ns and _reach(next(iter(p.values()))) > _reach(part)
        }
        self._parts[key] = newer

    def newest(self, lane: str, partition: int, topics: Mapping[str, str] | None = None) -> Snapshot | None:
        """Return the newest complete snapshot of a lane partition that read these topics."""
        return self._whole.get((lane, partition, tuple(sorted((topics or {}).items()))))


def _reach(snapshot: Snapshot) -> int:
    return sum(snapshot.offsets.values())
