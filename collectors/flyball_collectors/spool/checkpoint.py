"""The last acknowledged id, in a file of its own.

It only avoids repeats. An old, damaged or missing one loses nothing: records are then read again from the oldest
segment. So it is replaced atomically, and never synced.
"""

import struct
from pathlib import Path
from zlib import crc32

_FORMAT = struct.Struct("<4sQI")
_MAGIC = b"\xf1\x79\xba\x12"
RESERVED_BYTES = 2 * _FORMAT.size  # the old one and the new one


def read_checkpoint(folder: Path) -> int:
    """Last acknowledged id, or 0 if unknown."""
    try:
        data = (folder / "acked").read_bytes()
    except OSError:
        return 0
    if len(data) != _FORMAT.size:
        return 0
    magic, id, crc = _FORMAT.unpack(data)
    return int(id) if magic == _MAGIC and crc == crc32(data[:-4]) and id < 2**63 else 0


def write_checkpoint(folder: Path, id: int) -> None:
    """Replace it; if the write fails, the old one stays."""
    start = struct.pack("<4sQ", _MAGIC, id)
    fresh = folder / "acked.new"
    try:
        fresh.write_bytes(start + crc32(start).to_bytes(4, "little"))
        fresh.replace(folder / "acked")
    except OSError:
        return
