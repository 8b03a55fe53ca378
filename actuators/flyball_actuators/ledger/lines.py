"""The lines of the ledger's file: ``<checksum, 8 hex digits> <body>``, after a first line that names the format.

A checksum is the CRC-32 of all bodies up to its own, so a line that was changed, taken out or put elsewhere shows at
the next one. Only the end of the file can be cut off unseen. Files of older versions have no first line, and checksums
of each body alone.
"""

import zlib
from collections.abc import Iterator

HEADER = b"flyball-ledger 2\n"
SEED = zlib.crc32(HEADER)


def line_of(body: bytes, chain: int) -> tuple[bytes, int]:
    """The line of a body after a line whose checksum is ``chain``, and its own checksum."""
    after = zlib.crc32(body, chain)
    return b"%08x %s\n" % (after, body), after


def bodies_of(raw: bytes) -> Iterator[tuple[int, bytes | None]]:
    """Number and body of each line of a file, ``None`` for one that is damaged; nothing follows that.

    An end without a newline is a line that was being written, and is left out, unless it is whole but for its end: then
    the newline was damaged, and the line counts as such.
    """
    chained = raw.startswith(HEADER)
    chain, lines = SEED if chained else 0, raw.split(b"\n")
    torn = lines.pop()
    if chained:
        del lines[0]
    first = 2 if chained else 1
    for number, line in enumerate(lines, first):
        body = _body(line, chain)
        yield number, body
        if body is None:
            return
        chain = zlib.crc32(body, chain) if chained else 0
    if _body(torn[:-1], chain) is not None:
        yield first + len(lines), None


def _body(line: bytes, chain: int) -> bytes | None:
    checksum, _, body = line.partition(b" ")
    return body if checksum == b"%08x" % zlib.crc32(body, chain) else None
