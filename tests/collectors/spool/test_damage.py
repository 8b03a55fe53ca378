"""A spool whose files were damaged: it opens, loses only what was hit, and counts it."""

import os
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings, strategies as st

from flyball_collectors.spool import Spool

BIG = 1 << 20
HEADER_BYTES = 32


class Seen(NamedTuple):
    payloads: list[bytes]
    lost: int
    torn: int


@contextmanager
def folder() -> Generator[Path]:
    """A fresh folder for each example, in memory where that is to be had."""
    memory = Path("/dev/shm")
    path = Path(tempfile.mkdtemp(prefix="flyball-spool-", dir=memory if memory.is_dir() else None))
    try:
        yield path
    finally:
        shutil.rmtree(path)


def write(path: Path, payloads: list[bytes], segment_bytes: int = 300) -> None:
    spool = Spool(path, BIG, segment_bytes=segment_bytes, sync_s=0.0)
    for payload in payloads:
        assert spool.append(payload)
    spool.close()


def read(path: Path) -> Seen:
    """Everything that can be read; the ids rise; afterwards the spool is empty and works."""
    spool = Spool(path, BIG, sync_s=0.0)
    payloads: list[bytes] = []
    last = 0
    while records := spool.peek(7):
        assert all(r.id > last for r in records)
        payloads += [r.payload for r in records]
        last = records[-1].id
        spool.ack(last)
    stats = spool.stats
    assert (stats.records, stats.replayed, stats.dropped) == (0, len(payloads), 0)
    spool.append(b"healed")
    assert [r.payload for r in spool.peek(2)] == [b"healed"]
    spool.ack(spool.peek(1)[0].id)
    assert spool.lost == stats.corrupt + stats.torn
    spool.close()
    return Seen(payloads, stats.corrupt + stats.torn, stats.torn)


def is_part_of(some: list[bytes], all_of: list[bytes]) -> bool:
    left = iter(all_of)
    return all(payload in left for payload in some)


def segments(path: Path) -> list[Path]:
    return sorted(path.glob("*.spool"))


contents = st.lists(st.binary(max_size=120), min_size=1, max_size=25)


@settings(max_examples=300, deadline=None)
@given(contents, st.data())
def test_a_flipped_byte_costs_its_record_and_is_counted(payloads: list[bytes], data: st.DataObject) -> None:
    with folder() as path:
        write(path, payloads)
        file = data.draw(st.sampled_from(segments(path)))
        raw = bytearray(file.read_bytes())
        raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
        file.write_bytes(raw)
        seen = read(path)
    assert len(seen.payloads) == len(payloads) - 1
    assert seen.lost == 1
    assert is_part_of(seen.payloads, payloads)


@settings(max_examples=200, deadline=None)
@given(contents, st.binary(min_size=1, max_size=200), st.data())
def test_inserted_bytes_cost_one_record_at_most(payloads: list[bytes], extra: bytes, data: st.DataObject) -> None:
    with folder() as path:
        write(path, payloads)
        files = segments(path)
        file = data.draw(st.sampled_from(files))
        raw = file.read_bytes()
        at = data.draw(st.integers(0, len(raw)))
        file.write_bytes(raw[:at] + extra + raw[at:])
        seen = read(path)
    missing = len(payloads) - len(seen.payloads)
    assert missing in (0, 1)
    assert is_part_of(seen.payloads, payloads)
    assert seen.lost == missing or (seen.torn == 1 and file == files[-1])  # the end may look like a torn record


@settings(max_examples=200, deadline=None)
@given(contents, st.data())
def test_a_cut_costs_what_is_behind_it_in_that_file(payloads: list[bytes], data: st.DataObject) -> None:
    with folder() as path:
        write(path, payloads)
        files = segments(path)
        file = data.draw(st.sampled_from(files))
        raw = file.read_bytes()
        file.write_bytes(raw[: data.draw(st.integers(0, len(raw) - 1))])
        seen = read(path)
    missing = len(payloads) - len(seen.payloads)
    assert missing >= 1
    assert is_part_of(seen.payloads, payloads)
    if file == files[-1]:  # what stood at the very end is known to nobody but the torn one
        assert seen.lost == seen.torn <= 1
        assert seen.payloads == payloads[:-missing]
    else:
        assert seen.lost == missing


@settings(max_examples=200, deadline=None)
@given(contents, st.lists(st.tuples(st.integers(0), st.integers(1, 255)), max_size=40), st.booleans())
def test_any_damage_is_survived(payloads: list[bytes], hits: list[tuple[int, int]], checkpoint: bool) -> None:
    with folder() as path:
        write(path, payloads)
        for place, change in hits:
            files = [*segments(path), *([path / "acked"] if checkpoint else [])]
            file = files[place % len(files)]
            raw = bytearray(file.read_bytes())
            raw[place % len(raw)] ^= change
            file.write_bytes(raw)
        seen = read(path)
    assert is_part_of(seen.payloads, payloads)
    assert len(payloads) - len(hits) <= len(seen.payloads)
    assert seen.lost <= len(hits)


def test_a_kill_at_any_byte_loses_the_record_being_written(tmp_path: Path) -> None:
    payloads = [b"one", b"", b"three" * 5]
    write(tmp_path / "whole", payloads)
    (file,) = segments(tmp_path / "whole")
    raw = file.read_bytes()
    ends = [0]
    for payload in payloads:
        ends.append(ends[-1] + HEADER_BYTES + len(payload))
    assert ends[-1] == len(raw)
    for cut in range(len(raw) + 1):
        path = tmp_path / str(cut)
        path.mkdir()
        (path / file.name).write_bytes(raw[:cut])
        whole = sum(cut >= end for end in ends[1:])
        seen = read(path)
        assert seen == Seen(payloads[:whole], int(cut not in ends), int(cut not in ends))


def test_each_loss_is_counted_once_over_restarts(tmp_path: Path) -> None:
    write(tmp_path, [b"%d" % i for i in range(21)], segment_bytes=100)  # two in the last segment
    for file in segments(tmp_path)[2:4]:
        raw = bytearray(file.read_bytes())
        raw[40] ^= 1
        file.write_bytes(raw)
    last = segments(tmp_path)[-1]
    last.write_bytes(last.read_bytes()[:-1])
    lost = 0
    for _ in range(21 - 3):
        spool = Spool(tmp_path, BIG)
        spool.ack(spool.peek(1)[0].id)
        lost += spool.lost
        spool.close()
    spool = Spool(tmp_path, BIG)
    assert (spool.peek(1), len(spool)) == ([], 0)
    assert lost == 3
    spool.close()


def test_a_segment_that_vanished_is_counted(tmp_path: Path) -> None:
    write(tmp_path, [b"%d" % i for i in range(9)], segment_bytes=100)
    segments(tmp_path)[1].unlink()
    assert read(tmp_path) == Seen([b"0", b"1", b"2", b"6", b"7", b"8"], 3, 0)


def test_a_segment_that_vanishes_while_open_is_counted(tmp_path: Path) -> None:
    spool = Spool(tmp_path, BIG, segment_bytes=100)
    for i in range(9):
        spool.append(b"%d" % i)
    first, second, third = segments(tmp_path)
    assert first
    second.unlink()
    third.write_bytes(b"")
    assert [r.payload for r in spool.peek(9)] == [b"0", b"1", b"2"]
    spool.ack(3)
    assert spool.peek(1) == []
    assert spool.stats.corrupt == 6
    spool.close()


@pytest.mark.parametrize("name", ["acked", "acked.new"])
def test_leftovers_of_the_checkpoint_do_no_harm(tmp_path: Path, name: str) -> None:
    write(tmp_path, [b"0"])
    (tmp_path / name).write_bytes(bytes(500))
    assert read(tmp_path).payloads == [b"0"]


@pytest.mark.parametrize("kind", ["file", "folder", "link"])
@pytest.mark.parametrize("name", ["9" * 20, str(2**64), "0" * 20, f"{2**63 - 1:020d}"])
def test_a_forged_file_name_stops_nothing_and_counts_nothing(tmp_path: Path, kind: str, name: str) -> None:
    write(tmp_path, [b"one", b"two"])
    forged = tmp_path / f"{name}.spool"
    if kind == "file":
        forged.write_bytes(b"x" * 40)
    elif kind == "folder":
        forged.mkdir()
    else:
        forged.symlink_to("nowhere")
    assert read(tmp_path) == Seen([b"one", b"two"], 0, 0)
    assert os.path.lexists(forged)


def test_a_folder_with_the_name_of_the_next_file_stops_nothing(tmp_path: Path) -> None:
    write(tmp_path, [b"one"])
    (tmp_path / f"{7:020d}.spool").mkdir()
    assert read(tmp_path) == Seen([b"one"], 0, 0)
