"""The spool: append at one end, peek and acknowledge at the other."""

import errno
import fcntl
import logging
import os
from bisect import bisect_right
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from flyball_collectors.spool.checkpoint import RESERVED_BYTES, read_checkpoint, write_checkpoint
from flyball_collectors.spool.record import OVERHEAD_BYTES, Record, encode, inspect_tail
from flyball_collectors.spool.segment import Segment, find_segments
from flyball_collectors.spool.syncer import Syncer

_LOG = logging.getLogger(__name__)
_SEGMENT_BYTES = 1024 * 1024  # also what reading holds in memory
_SEGMENTS = 8  # at least as many in a budget: dropping one leaves the others
_CHECKPOINT_EVERY = 256
_id_of = attrgetter("id")


class SpoolStats(NamedTuple):
    """Counts of records since the spool was opened.

    ``spooled`` were appended, ``replayed`` acknowledged. Lost are: ``dropped``, over budget or refused by the disk;
    ``corrupt``, damaged on disk; ``torn``, cut off while being written. ``records`` wait now, in ``bytes`` of files;
    the oldest is of ``oldest_ns``. Damage is counted when it is read, until then such a record counts as waiting.
    Always: waiting when opened + appended + refused = ``replayed + dropped + corrupt + records``.
    """

    spooled: int
    replayed: int
    dropped: int
    corrupt: int
    torn: int
    records: int
    bytes: int
    oldest_ns: int | None


class Spool:
    """Queue of records in the files of one folder, at most ``budget_bytes`` of them (names and blocks not counted).

    The segments contain the whole state and are scanned: ids rise by one, and a segment is named by its first id, so
    that a gap in the ids counts the missing records. The checkpoint only avoids repeats. An acknowledged segment is
    deleted as a whole; when the budget is used up, so is the oldest, and its records are counted. Each opening starts a
    segment of its own: nothing is ever written behind old data.

    A killed process loses no record whose ``append`` returned. Syncing happens in a thread, ``sync_s`` after the first
    record that is not synced yet: a power cut loses what was appended in about that time. Records lost at the end of
    the newest segment leave no gap of ids here; readers of the frames notice it by their ``seq``.

    Not thread-safe. After opening, ``OSError`` is never raised: records that cannot be written are dropped and counted.
    Raises ``OSError`` when the folder cannot be used, ``BlockingIOError`` when another process uses it.
    """

    def __init__(
        self, path: Path, budget_bytes: int, *, segment_bytes: int = _SEGMENT_BYTES, sync_s: float = 0.5
    ) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._budget = budget_bytes - RESERVED_BYTES
        self._segment_bytes = min(segment_bytes, budget_bytes // _SEGMENTS)
        self._spooled = self.replayed = self._dropped = self._corrupt = self._torn = 0
        self._stuck_bytes = 0  # of files that could not be deleted
        self._ready: list[Record] = []
        self._segments: list[Segment] = []
        self._acked = 0  # the last id that is done with
        self._next_id = 1
        self._bytes = 0
        self._warned = False
        self._unsaved = 0
        self._folder_fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(self._folder_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not os.access(path, os.W_OK | os.X_OK):  # another user's, or of a file system that is read-only
                raise PermissionError(errno.EACCES, "it cannot be written", str(path))
            self._recover()
        except BaseException:
            os.close(self._folder_fd)
            raise
        self._syncer = Syncer(self._folder_fd, sync_s)

    def __len__(self) -> int:
        """Number of waiting records."""
        return self._next_id - 1 - self._acked

    @property
    def lost(self) -> int:
        """Number of lost records: dropped, corrupt or torn."""
        return self._dropped + self._corrupt + self._torn

    @property
    def stats(self) -> SpoolStats:
        """All counts; may read the oldest segment to know the oldest time."""
        oldest = self.peek(1)
        return SpoolStats(
            self._spooled,
            self.replayed,
            self._dropped,
            self._corrupt,
            self._torn,
            len(self),
            self._bytes,
            oldest[0].time_ns if oldest else None,
        )

    def append(self, record: bytes, time_ns: int = 0) -> bool:
        """Add one record with its time; return false if it is not kept, which is counted as dropped."""
        size = OVERHEAD_BYTES + len(record)
        try:
            if not self._make_room(size):
                raise OSError(f"a record of {size} bytes is over the budget")
            segment = self._segment_for(size)
            segment.write(encode(self._next_id, time_ns, record))
        except OSError as error:
            self._dropped += 1
            self._bytes = self._stuck_bytes + sum(segment.size for segment in self._segments)
            if not self._warned:
                self._warned = True
                _LOG.warning("%s takes no record (%s); what does not fit is dropped", self._path, error)
            return False
        self._syncer.mark(segment.first_id, segment.fd)
        self._warned = False
        self._bytes += size
        self._next_id += 1
        self._spooled += 1
        return True

    def peek(self, n: int, after: int = 0) -> list[Record]:
        """Return the ``n`` oldest waiting records, or those behind id ``after``; fewer if there are no more."""
        start = bisect_right(self._ready, after, key=_id_of)
        while len(self._ready) - start < n and self._load():
            start = bisect_right(self._ready, after, key=_id_of)
        if n > 0 and not self._ready and len(self):  # nothing of what should be there can be read
            self.ack(self._next_id - 1)
        return self._ready[start : start + n]

    def ack(self, id: int) -> None:
        """Drop the records up to ``id``; unreadable ones among them are counted as corrupt."""
        id = min(id, self._next_id - 1)
        if id <= self._acked:
            return
        while (not self._ready or self._ready[-1].id < id) and self._load():
            pass
        sound = bisect_right(self._ready, id, key=_id_of)
        self.replayed += sound
        self._corrupt += id - self._acked - sound
        self._forget(id)
        self._remove_acknowledged()
        self._unsaved += sound
        if self._unsaved >= _CHECKPOINT_EVERY:
            self._save()

    def close(self) -> None:
        """Sync, and release the folder; the counts stay. A second call does nothing."""
        if self._folder_fd < 0:
            return
        self._save()
        self._syncer.close()
        for segment in self._segments:
            segment.close()
        os.close(self._folder_fd)
        self._folder_fd = -1

    def _recover(self) -> None:
        """Read the existing segments; cut off an incompletely written record."""
        self._segments = find_segments(self._path)
        self._bytes = sum(segment.size for segment in self._segments)
        self._acked = read_checkpoint(self._path)
        self._next_id = self._acked + 1
        if self._segments:
            newest = self._segments[-1]
            tail = inspect_tail(newest.path.read_bytes(), newest.first_id)
            os.truncate(newest.path, tail.end)
            self._bytes -= newest.size - tail.end
            newest.size = tail.end
            self._corrupt, self._torn = tail.corrupt, tail.torn
            # Segments are removed only from the front: records missing there were acknowledged or dropped, and counted.
            self._acked = max(self._acked, self._segments[0].first_id - 1)
            self._next_id = max(tail.next_id, self._acked + 1)
        self._remove_acknowledged()
        self._make_room(0)
        if self._segments and self._segments[-1].size == 0:
            self._remove(self._segments.pop())

    def _end_id(self, index: int) -> int:
        """First id behind a segment."""
        return self._segments[index + 1].first_id if index + 1 < len(self._segments) else self._next_id

    def _make_room(self, size: int) -> bool:
        """Drop the oldest segments until ``size`` more bytes are within the budget; false if they can never be."""
        if size > self._budget - self._stuck_bytes:
            return False
        while self._bytes + size > self._budget:
            last = self._end_id(0) - 1
            self._dropped += max(0, last - self._acked)
            self._remove(self._segments.pop(0))
            self._forget(last)
        return True

    def _segment_for(self, size: int) -> Segment:
        """The segment to write to: the newest, or a new one if that is full or from an earlier run."""
        newest = self._segments[-1] if self._segments else None
        if newest is not None and newest.fd >= 0:
            if newest.size + size <= self._segment_bytes or newest.size == 0:
                return newest
            newest.close()
        elif newest is not None and newest.first_id == self._next_id:  # the disk took less than one record
            self._remove(self._segments.pop())
        fresh = Segment.create(self._path, self._next_id)
        self._segments.append(fresh)
        return fresh

    def _load(self) -> bool:
        """Read on; return false when all is read."""
        for index, segment in enumerate(self._segments):
            if segment.unread:
                self._ready += (r for r in segment.load(self._end_id(index)) if r.id > self._acked)
                return True
        return False

    def _forget(self, id: int) -> None:
        """Continue behind ``id``."""
        self._acked = max(self._acked, id)
        del self._ready[: bisect_right(self._ready, self._acked, key=_id_of)]

    def _remove_acknowledged(self) -> None:
        while self._segments and self._end_id(0) - 1 <= self._acked:
            self._remove(self._segments.pop(0))

    def _remove(self, segment: Segment) -> None:
        stuck = segment.remove()
        self._stuck_bytes += stuck
        self._bytes -= segment.size - stuck
        self._unsaved = _CHECKPOINT_EVERY  # ids must keep rising even if no segment is left

    def _save(self) -> None:
        write_checkpoint(self._path, self._acked)
        self._unsaved = 0
