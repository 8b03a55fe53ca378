"""Lane states as messages: compressed, cut to the size of a message, and put together again."""

import mmap
from collections.abc import Mapping
from contextlib import closing

import cramjam
import msgspec

from flyball_contracts.records import Snapshot

PART_BYTES = 512 * 1024
MOST_STATE_BYTES = 1 << 30
"""A state that is larger is neither sent nor read: a message of 200 kB can unpack to gigabytes."""
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
    """Parts of one snapshot; ``state`` is the lane's own, as it gave it, ``topics`` are the ids of its sources.

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
    """State of a whole snapshot, as the lane gave it.

    Raises :data:`CompressionError` when it is damaged or unpacks to more than ``MOST_STATE_BYTES``. The buffer of that
    size costs memory only where something is written to it.
    """
    with closing(mmap.mmap(-1, MOST_STATE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)) as room:
        try:
            return room[: cramjam.zstd.decompress_into(snapshot.state, room)]
        except CompressionError as error:
            most = f"{MOST_STATE_BYTES / 2**20:g} MiB"
            raise CompressionError(f"it is damaged or unpacks to more than {most}: {error}") from error


class SnapshotShelf:
    """Keeps, of each lane partition, the whole snapshot that includes the most messages.

    Parts lie in several partitions and come in any order, older ones between newer ones. Newest is what has read
    furthest: the clocks of two workers need not agree. What was read of a topic that was deleted since counts apart.
    """

    def __init__(self) -> None:
        self._whole: dict[Key, Snapshot] = {}
        self._parts: dict[Key, dict[int, dict[int, Snapshot]]] = {}

    def put(self, part: Snapshot) -> None:
        """Take one part in; parts that nobody will need are dropped."""
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
        """Return the newest whole snapshot of a lane partition, of those that read these topics."""
        return self._whole.get((lane, partition, tuple(sorted((topics or {}).items()))))


def _reach(snapshot: Snapshot) -> int:
    return sum(snapshot.offsets.values())
