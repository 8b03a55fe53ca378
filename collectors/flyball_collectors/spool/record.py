"""One record on disk, and recovery of records from damaged bytes.

A record is a header (little-endian: magic, id, time, length, CRC-32 of the payload, CRC-32 of the header before
it), then the payload. Ids rise by one from record to record.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple
from zlib import crc32

_MAGIC = b"\xf1\x79\xba\x11"
_HEADER = struct.Struct("<4sQqIII")
_CHECKED = _HEADER.size - 4
OVERHEAD_BYTES = _HEADER.size
LAST_ID = 2**63 - 1


class Record(NamedTuple):
    """A decoded record; ``time_ns`` is the argument of :meth:`Spool.append`."""

    id: int
    payload: bytes
    time_ns: int


class Tail(NamedTuple):
    """End of a segment: where the readable part ends, and what is lost behind it."""

    next_id: int
    end: int
    corrupt: int
    torn: int


def encode(id: int, time_ns: int, payload: bytes) -> bytes:
    """Bytes of a record."""
    header = _HEADER.pack(_MAGIC, id, time_ns, len(payload), crc32(payload), 0)
    return b"".join((header[:_CHECKED], crc32(header[:_CHECKED]).to_bytes(4, "little"), payload))


def scan(data: bytes, first_id: int, end_id: int) -> list[Record]:
    """Every intact record in ``data`` with an id from ``first_id`` to before ``end_id``, ids rising.

    Bytes between them are skipped: after damage the next header with a correct checksum starts the next record.
    """
    return [record for record, _ in _sound(data, first_id, end_id)]


def inspect_tail(data: bytes, first_id: int) -> Tail:
    """Inspect the end of the newest segment, whose first id is ``first_id``.

    Behind the last intact record, each whole record with an intact header is corrupt; bytes without one are an
    incompletely written record.
    """
    next_id, end = first_id, 0
    for record, after in _sound(data, first_id, LAST_ID):
        next_id, end = record.id + 1, after
    corrupt, known = 0, end
    for id, start, after in _headers(data, end):
        if id == next_id + corrupt and start >= known and after <= len(data):
            corrupt, known = corrupt + 1, after
    return Tail(next_id, end, corrupt, int(not corrupt and end < len(data)))


def _sound(data: bytes, first_id: int, end_id: int) -> Iterator[tuple[Record, int]]:
    """Intact records, each with its end."""
    view = memoryview(data)
    start, unpack = data.find(_MAGIC), _HEADER.unpack_from
    while 0 <= start <= len(data) - _HEADER.size:
        _, id, time_ns, length, payload_crc, header_crc = unpack(data, start)
        body = start + _HEADER.size
        end = body + length
        if (
            first_id <= id < end_id
            and end <= len(data)
            and crc32(view[start : start + _CHECKED]) == header_crc
            and crc32(view[body:end]) == payload_crc
        ):
            yield Record(id, data[body:end], time_ns), end
            first_id = id + 1
            start = data.find(_MAGIC, end)
        else:
            start = data.find(_MAGIC, start + 1)


def _headers(data: bytes, start: int) -> Iterator[tuple[int, int, int]]:
    """Intact headers from ``start`` on, whatever their payload: id, start and end of the record."""
    view = memoryview(data)
    start = data.find(_MAGIC, start)
    while 0 <= start <= len(data) - _HEADER.size:
        _, id, _, length, _, header_crc = _HEADER.unpack_from(data, start)
        if crc32(view[start : start + _CHECKED]) == header_crc:
            yield id, start, start + _HEADER.size + length
        start = data.find(_MAGIC, start + 1)
