"""One file of records, named by its first id."""

import logging
import os
import stat
from pathlib import Path

from flyball_collectors.spool.record import LAST_ID, Record, scan

_LOG = logging.getLogger(__name__)
_SUFFIX = ".spool"
_DIGITS = 20
_LAST_FIRST_ID = LAST_ID // 2  # ids count records, so a name beyond it was not given by a spool


class Segment:
    """A file of records with rising ids, from ``first_id`` on; ``size`` is the number of bytes with records.

    ``fd`` is the descriptor for writing, below 0 when it is only read.
    """

    def __init__(self, path: Path, first_id: int, size: int) -> None:
        self.path = path
        self.first_id = first_id
        self.size = size
        self.fd = -1
        self._loaded = 0
        self._next_id = first_id

    @classmethod
    def create(cls, folder: Path, first_id: int) -> "Segment":
        """Create a file; raises ``OSError`` if that fails."""
        segment = cls(folder / f"{first_id:0{_DIGITS}d}{_SUFFIX}", first_id, 0)
        segment.fd = os.open(segment.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        return segment

    @property
    def unread(self) -> bool:
        """Whether :meth:`load` has not read all of it yet."""
        return self._loaded < self.size

    def write(self, data: bytes) -> None:
        """Append one record; raises ``OSError`` when it does not fit, and then the file is unchanged."""
        try:
            written = os.write(self.fd, data)
            while written < len(data):  # a disk that fills up takes a part, and then refuses
                written += os.write(self.fd, data[written:])
        except OSError:
            self._cut()
            raise
        self.size += len(data)

    def load(self, end_id: int) -> list[Record]:
        """Records not loaded before, with ids before ``end_id``; an unreadable disk yields none."""
        try:
            with self.path.open("rb", buffering=0) as file:
                file.seek(self._loaded)
                data = file.read(self.size - self._loaded)
        except OSError:
            data = b""
        self._loaded = self.size
        records = scan(data, self._next_id, end_id)
        if records:
            self._next_id = records[-1].id + 1
        return records

    def close(self) -> None:
        """Stop writing."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def remove(self) -> int:
        """Delete the file; return how many of its bytes could not be freed."""
        self.close()
        try:
            self.path.unlink(missing_ok=True)
        except OSError:
            return self.size
        return 0

    def _cut(self) -> None:
        """Undo a partial write; if that fails, nothing more is written behind it."""
        try:
            os.ftruncate(self.fd, self.size)
        except OSError:
            self.size = os.fstat(self.fd).st_size
            self.close()


def find_segments(folder: Path) -> list[Segment]:
    """Segments in a folder, oldest first; other files are left alone, with a warning if the name is similar."""
    found: list[Segment] = []
    for path in folder.glob(f"*{_SUFFIX}"):
        if len(path.stem) == _DIGITS and path.stem.isdecimal() and path.stem.isascii():
            at = path.stat(follow_symlinks=False)
            if 0 < int(path.stem) <= _LAST_FIRST_ID and stat.S_ISREG(at.st_mode):
                found.append(Segment(path, int(path.stem), at.st_size))
            else:
                _LOG.warning("%s is no file of the spool and is left alone; remove it", path)
    return sorted(found, key=lambda segment: segment.first_id)
