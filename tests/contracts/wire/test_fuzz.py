"""Mutated bytes: the decoders answer with a value that can be sent on, or with the contract's own error.

``FLYBALL_FUZZ`` is the number of mutated frames (and four times that of records); the seed is fixed.
"""

import os
import random
from collections.abc import Iterator, Sequence

from tests.contracts.strategies import sample, samples
from tests.contracts.wire.test_golden import frame_of

from flyball_contracts.codec import decode_record, decode_snapshot, record_message, snapshot_message
from flyball_contracts.errors import DecodeError
from flyball_contracts.frame import Frame, decode_frame, encode_frame
from flyball_contracts.metrics import LAYOUTS
from flyball_contracts.records import Snapshot

FRAMES = int(os.environ.get("FLYBALL_FUZZ", "1000000"))
RECORDS = FRAMES // 4
# What decoders trip over: lengths that lie, the ends of integers, wrong types, deep nests, broken UTF-8.
PACKED_TRAPS = [
    b"\xc0", b"\xc1", b"\xc4\xff", b"\xc6\xff\xff\xff\xff", b"\xcb\x7f\xf8\0\0\0\0\0\0", b"\xcf" + b"\xff" * 8,
    b"\xd3\x80" + b"\0" * 7, b"\xdb\xff\xff\xff\xff", b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\x91" * 40,
    b"\xa2\xed\xa0", b"\xff", b"\x00",
]  # fmt: skip
JSON_TRAPS = [
    b"null", b"NaN", b"1e999", b"-1", b"9" * 30, b"9" * 5000, b'"\\ud800"', b"[" * 60, b'{"a":' * 30, b"\xff", b"\0",
    b'"', b"\\", b",", b"1.5", b"true", b"{}", b"[]", b'"x"', b"-0.0", b"1E400", b"0" * 9,
]  # fmt: skip


def mutations(seeds: Sequence[bytes], traps: Sequence[bytes], count: int) -> Iterator[bytes]:
    """So many mutants of valid messages; half of the changes fall into the first 90 bytes, where headers are."""
    rng = random.Random(20_260_101)
    uniform = rng.random
    for _ in range(count):
        base = seeds[int(uniform() * len(seeds))]
        size = len(base)
        at = int(uniform() * (min(size, 90) if uniform() < 0.5 else size))
        kind = int(uniform() * 7)
        if kind <= 1:  # flip one to three bits
            raw = bytearray(base)
            raw[at] ^= 1 << int(uniform() * 8)
            for _ in range(int(uniform() * 3)):
                raw[int(uniform() * size)] ^= 1 << int(uniform() * 8)
            yield bytes(raw)
        elif kind == 2:
            yield base[:at]
        elif kind == 3:
            yield base[:at] + traps[int(uniform() * len(traps))] + base[at:]
        elif kind == 4:  # a trap instead of what was there
            trap = traps[int(uniform() * len(traps))]
            yield base[:at] + trap + base[at + int(uniform() * 12) :]
        elif kind == 5:  # the head of one and the tail of another
            other = seeds[int(uniform() * len(seeds))]
            yield base[:at] + other[int(uniform() * len(other)) :]
        else:  # something is missing in the middle
            yield base[:at] + base[at + 1 + int(uniform() * 8) :]


def test_mutated_frames_are_frames_or_decode_errors() -> None:
    seeds = [encode_frame(frame_of(schema)) for schema in LAYOUTS for _ in range(2)]
    refused = 0
    for raw in mutations(seeds, PACKED_TRAPS, FRAMES):
        try:
            frame = decode_frame(raw)
        except DecodeError:
            refused += 1
            continue
        assert isinstance(frame, Frame)
        assert frame.values.shape == (frame.rows, len(LAYOUTS[frame.schema]))
        assert decode_frame(encode_frame(frame)) == frame
    assert 0.3 * FRAMES < refused < 0.99 * FRAMES, "the mutations are too harsh or too mild to find anything"


def test_mutated_records_are_records_or_decode_errors() -> None:
    kinds = samples()
    refused = 0
    for full, minimal in kinds.values():
        topic, _, _, headers, _ = record_message(full, "/fuzz")
        seeds = [record_message(record, "/fuzz").value for record in (full, minimal)]
        for raw in mutations(seeds, JSON_TRAPS, RECORDS // len(kinds)):
            try:
                record = decode_record(topic, raw, headers)
            except DecodeError:
                refused += 1
                continue
            again = record_message(record, "/fuzz")
            assert decode_record(topic, again.value, again.headers) == record
    assert 0.3 * RECORDS < refused < 0.99 * RECORDS


def test_mutated_headers_are_decode_errors_or_the_record() -> None:
    full, _ = samples()["Scale"]
    topic, _, value, headers, _ = record_message(full, "/fuzz")
    for raw in mutations([b"io.flyball.Scale"], [b"\xff", b"\xed\xa0\x80", b"Preempt", b"\0"], 2000):
        changed = [(name, raw if name == "ce_type" else text) for name, text in headers]
        try:
            assert decode_record(topic, value, changed) == full
        except DecodeError:
            continue


def test_mutated_snapshots_are_snapshots_or_decode_errors() -> None:
    seeds = [snapshot_message(sample(Snapshot, full=True)).value]
    for raw in mutations(seeds, PACKED_TRAPS, RECORDS // 4):
        try:
            snapshot = decode_snapshot(raw)
        except DecodeError:
            continue
        assert decode_snapshot(snapshot_message(snapshot).value) == snapshot
