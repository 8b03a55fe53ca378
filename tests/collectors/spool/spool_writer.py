"""The process that `spool_kills.py` kills: it appends and acknowledges, and tells each step."""

import os
import random
import struct
from multiprocessing.connection import Connection
from pathlib import Path

from flyball_collectors.spool import Spool

SEGMENT_BYTES = 64 * 1024
NOTE = struct.Struct("<cQ")


def payload(number: int) -> bytes:
    """Content that its number tells; some are so long that a kill can cut their write."""
    size = 200_000 if number % 97 == 0 else number * 7919 % 4_000
    return struct.pack("<Q", number) + bytes([number % 251]) * size


def write(folder: Path, budget: int, number: int, notes: Connection, seed: int) -> None:
    """Append records from ``number`` on for ever; ``a`` notes tell what was appended, ``d`` what is acknowledged."""
    chance = random.Random(seed)
    note = notes.fileno()
    spool = Spool(folder, budget, segment_bytes=SEGMENT_BYTES, sync_s=0.001)
    while True:
        if spool.append(payload(number)):
            os.write(note, NOTE.pack(b"a", number))
        number += 1
        if chance.random() < 0.02 and (records := spool.peek(chance.randrange(1, 60))):
            (last,) = struct.unpack_from("<Q", records[-1].payload)
            os.write(note, NOTE.pack(b"d", last))
            spool.ack(records[-1].id)
