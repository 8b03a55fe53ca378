"""Follows the log of a training job through rotation and truncation."""

import os
import re
import stat
from pathlib import Path

from flyball_collectors.workload.training.job import FIELDS
from flyball_contracts.errors import ConfigError

_LINE_BYTES = 1 << 14


def compile_pattern(pattern: str, where: str) -> re.Pattern[str]:
    """The regular expression of a log; raises :class:`ConfigError`, which names ``where``."""
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise ConfigError(f"{where}: no regular expression: {error}") from error
    groups = set(compiled.groupindex)
    if not groups or not groups <= FIELDS:
        known = ", ".join(sorted(FIELDS))
        raise ConfigError(
            f"{where}: has the named groups {sorted(groups)}; name at least one, (?P<step>...), of {known}"
        )
    return compiled


class Follower:
    """New matches in a growing file; at most ``most_bytes`` are read in a call.

    It starts near the end. A replaced file is read to its end first; one that gets shorter is read from its start. If
    it grows faster than it is read, the oldest bytes are skipped: ``skipped`` counts them.
    """

    def __init__(self, path: Path, pattern: re.Pattern[str], most_bytes: int = 1 << 16) -> None:
        self.skipped = 0
        self._path = path
        self._pattern = pattern
        self._most_bytes = most_bytes
        self._file: int | None = None
        self._at = 0
        self._rest = b""
        self._cut = False  # the line that _rest begins with has lost its head
        self._new = True

    def take(self) -> dict[str, float]:
        """The last value of each named group since the last call; empty when there is none."""
        found: dict[str, float] = {}
        left = self._most_bytes
        if self._file is None:
            self._open()
        while self._file is not None and left > 0:
            part = self._read(left)
            left -= len(part)
            self._match(part, found)
            if part:
                continue
            if not self._replaced():
                break
            self.close()
            self._open()
        return found

    def problem(self) -> str:
        """Why the file cannot be followed now; empty if it can."""
        if os.access(self._path, os.R_OK) and self._path.is_file():
            return ""
        return f"{self._path}: no file that can be read; check path, and that the agent's user may read it"

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _open(self) -> None:
        """Open the file; the first one near its end, as it may be long, a later one at its start."""
        try:
            file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            self._new = False  # a file that appears from now on is read from its start
            return
        try:
            about = os.fstat(file)
        except OSError:  # a handle that is stale already
            os.close(file)
            return
        if not stat.S_ISREG(about.st_mode):
            os.close(file)
            return
        self._file, self._rest = file, b""
        self._at = max(about.st_size - self._most_bytes, 0) if self._new else 0
        self._cut = self._at > 0
        self._new = False

    def _read(self, most: int) -> bytes:
        assert self._file is not None
        try:
            size = os.fstat(self._file).st_size
            if size < self._at:
                self._at, self._rest, self._cut = 0, b"", False
            if size - self._at > 8 * self._most_bytes:
                skipped = size - self._at - self._most_bytes
                self.skipped += skipped
                self._at, self._rest, self._cut = self._at + skipped, b"", True
            part = os.pread(self._file, most, self._at)
        except OSError:
            return b""
        self._at += len(part)
        return part

    def _replaced(self) -> bool:
        assert self._file is not None
        try:
            now = os.stat(self._path)
        except OSError:
            return False  # moved away, and the new one is not there yet
        try:
            mine = os.fstat(self._file)
        except OSError:
            return True  # a stale handle of NFS never works again
        return (now.st_dev, now.st_ino) != (mine.st_dev, mine.st_ino)

    def _match(self, part: bytes, found: dict[str, float]) -> None:
        *lines, self._rest = (self._rest + part).split(b"\n")
        for line in lines:
            if not self._cut and len(line) <= _LINE_BYTES:
                self._search(line.decode("utf-8", "replace"), found)
            self._cut = False
        if len(self._rest) > _LINE_BYTES:
            self._rest, self._cut = b"", True

    def _search(self, line: str, found: dict[str, float]) -> None:
        match = self._pattern.search(line)
        for name, text in match.groupdict().items() if match else ():
            try:
                found[name] = float(text)
            except (TypeError, ValueError):
                continue  # a group that did not take part, or no number there
