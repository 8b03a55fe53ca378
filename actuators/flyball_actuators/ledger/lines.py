"""A chain of lines: ``<checksum> <body>``, after a first line that names the format.

A checksum covers the body and the previous checksum, so a changed, removed or moved line is detected. Only truncation
at the end is not. The ledger uses CRC-32, against disk errors and crashes. The audit trail uses SHA-256: a changed line
requires a rewrite of all later ones, and published checksums cannot be rewritten.
"""

import errno
import hashlib
import os
import zlib
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import NamedTuple

from flyball_contracts.errors import FlyballError

Checksum = Callable[[bytes, bytes], bytes]
"""Checksum of a body that follows another checksum; both are hexadecimal digits."""


def crc32(before: bytes, body: bytes) -> bytes:
    """CRC-32, eight digits."""
    return b"%08x" % zlib.crc32(body, int(before, 16))


def sha256(before: bytes, body: bytes) -> bytes:
    """SHA-256, 64 digits."""
    return hashlib.sha256(before + b" " + body).hexdigest().encode()


class NotWrittenError(FlyballError):
    """A line is not on disk: the step that it records must not happen, and the actuator ends."""


class Disk:
    """The disk of one file of lines; ``key`` is the file's key of the configuration.

    The first write that fails is the last: a line may be there in part, and nothing may follow it.
    """

    def __init__(self, key: str, path: Path | None) -> None:
        self._key, self._path = key, path
        self._failed: NotWrittenError | None = None

    @contextmanager
    def writing(self) -> Generator[None]:
        """Raise :class:`NotWrittenError` if the block cannot write, or an earlier one could not."""
        if self._failed is not None:
            raise self._failed
        try:
            yield
        except OSError as error:
            self._failed = NotWrittenError(
                f"{self._key}: {self._path} cannot be written: {error.strerror}; nothing more is carried out: make "
                "room on the disk, then start the actuator again"
            )
            raise self._failed from error


def append(file: FileIO, line: bytes) -> None:
    """Append a line in one call; raises ``OSError`` also if the disk took only a part."""
    if file.write(line) != len(line):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class Line(NamedTuple):
    """One line: its number in the file, its checksum, and its body (``None`` if the checksum is wrong)."""

    number: int
    checksum: bytes
    body: bytes | None


class Chain:
    """Makes the checksums of new lines; ``header`` is the first line of the file."""

    def __init__(self, header: bytes, of: Checksum) -> None:
        self._of = of
        self.last = of(b"0", header)

    def line(self, body: bytes) -> bytes:
        """The next line; it becomes part of the chain with :meth:`add`."""
        return self._of(self.last, body) + b" " + body + b"\n"

    def add(self, line: bytes) -> None:
        """Note that a line was written."""
        self.last = line.partition(b" ")[0]


def lines_of(raw: bytes, header: bytes, of: Checksum) -> Iterator[Line]:
    """Lines of a file after its first; stops at a line with a wrong checksum.

    An end without a newline is a line that was being written, and is left out. If its checksum is right, only the
    newline was damaged, and the line is reported as wrong. A file that does not begin with ``header`` is of an older
    version: it has no such line, and each checksum covers its body alone.
    """
    chained = raw.startswith(header)
    before, lines = (of(b"0", header) if chained else b"0"), raw.split(b"\n")
    torn = lines.pop()
    if chained:
        del lines[0]
    first = 2 if chained else 1
    for number, text in enumerate(lines, first):
        checksum, _, body = text.partition(b" ")
        right = checksum == of(before, body)
        yield Line(number, checksum, body if right else None)
        if not right:
            return
        before = checksum if chained else b"0"
    checksum, _, body = torn[:-1].partition(b" ")
    if checksum == of(before, body):
        yield Line(first + len(lines), checksum, None)
