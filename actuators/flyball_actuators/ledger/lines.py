"""Lines that are chained: ``<checksum> <body>``, after a first line that names the format.

A checksum is of the body and of the checksum before it, so a line that was changed, taken out or put elsewhere shows.
Only the end of a file can be cut off unseen. The ledger's checksums are CRC-32: they find what a disk or a crash did.
The audit's are SHA-256: who changes a line must make all later ones anew, and cannot make what was published anew.
"""

import hashlib
import zlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

Checksum = Callable[[bytes, bytes], bytes]
"""Of a body after another checksum; both are hexadecimal digits."""


def crc32(before: bytes, body: bytes) -> bytes:
    """Eight digits."""
    return b"%08x" % zlib.crc32(body, int(before, 16))


def sha256(before: bytes, body: bytes) -> bytes:
    """64 digits."""
    return hashlib.sha256(before + b" " + body).hexdigest().encode()


class Line(NamedTuple):
    """One line: its number in the file, its checksum, and its body, which is ``None`` where the checksum is wrong."""

    number: int
    checksum: bytes
    body: bytes | None


class Chain:
    """The checksum of the last line, from which the next one is made; ``header`` is the first line of the file."""

    def __init__(self, header: bytes, of: Checksum) -> None:
        self._of = of
        self.last = of(b"0", header)

    def line(self, body: bytes) -> bytes:
        """The next line; it counts once it was given to :meth:`add`."""
        return self._of(self.last, body) + b" " + body + b"\n"

    def add(self, line: bytes) -> None:
        """A line was written."""
        self.last = line.partition(b" ")[0]


def lines_of(raw: bytes, header: bytes, of: Checksum) -> Iterator[Line]:
    """Lines of a file after its first one; nothing follows one that is wrong.

    An end without a newline is a line that was being written, and is left out, unless it is whole but for its end: then
    the newline was damaged, and the line counts as such. A file that does not begin with ``header`` is one of an older
    version, without a first line, whose checksums are of each body alone.
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
