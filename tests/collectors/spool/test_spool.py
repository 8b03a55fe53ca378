"""The spool as a queue: order, budget, restarts, and a disk that takes no more."""

import errno
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from flyball_collectors.spool import Spool, pack, unpack
from flyball_contracts.codec import Message
from flyball_contracts.errors import DecodeError

BIG = 1 << 20


def payloads(spool: Spool) -> list[bytes]:
    return [record.payload for record in spool.peek(1_000_000)]


def bytes_in(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def test_what_goes_in_comes_out_in_order(tmp_path: Path) -> None:
    spool = Spool(tmp_path, BIG, segment_bytes=200)
    sent = [b"%d" % i * i for i in range(50)]
    for i, payload in enumerate(sent):
        assert spool.append(payload, 1000 + i)
    assert [(r.id, r.payload, r.time_ns) for r in spool.peek(3)] == [(i + 1, sent[i], 1000 + i) for i in range(3)]
    assert [r.id for r in spool.peek(2, after=7)] == [8, 9]
    assert spool.stats.oldest_ns == 1000
    spool.ack(10)
    assert payloads(spool) == sent[10:]
    assert spool.stats._replace(bytes=0) == (50, 10, 0, 0, 0, 40, 0, 1010)
    spool.ack(99)
    assert spool.peek(1) == []
    assert spool.stats == (50, 50, 0, 0, 0, 0, 0, None)
    spool.close()
    assert [path.name for path in tmp_path.iterdir()] == ["acked"]


def test_only_whole_segments_are_deleted(tmp_path: Path) -> None:
    spool = Spool(tmp_path, BIG, segment_bytes=300)
    for _ in range(30):
        spool.append(bytes(68))  # three to a segment
    files = sorted(tmp_path.glob("*.spool"))
    spool.ack(5)
    assert sorted(tmp_path.glob("*.spool")) == files[1:]
    spool.close()


def test_a_restart_goes_on_where_it_was(tmp_path: Path) -> None:
    first = Spool(tmp_path, BIG)
    for i in range(5):
        first.append(b"%d" % i)
    first.ack(2)
    first.close()
    second = Spool(tmp_path, BIG)
    assert (payloads(second), len(second)) == ([b"2", b"3", b"4"], 3)
    second.append(b"5")
    assert [r.id for r in second.peek(9)] == [3, 4, 5, 6]
    second.ack(6)
    second.close()
    third = Spool(tmp_path, BIG)
    third.append(b"6")
    assert [(r.id, r.payload) for r in third.peek(9)] == [(7, b"6")]
    third.close()


@pytest.mark.parametrize("damage", [b"", b"garbage", b"\xf1\x79\xba\x12" + bytes(12)])
def test_without_a_checkpoint_the_oldest_segment_comes_again(tmp_path: Path, damage: bytes) -> None:
    spool = Spool(tmp_path, BIG, segment_bytes=100)
    for i in range(9):
        spool.append(b"%d" % i)  # three to a segment
    spool.ack(5)
    spool.close()
    (tmp_path / "acked").write_bytes(damage)
    spool = Spool(tmp_path, BIG)
    assert payloads(spool) == [b"3", b"4", b"5", b"6", b"7", b"8"]
    spool.ack(9)
    assert spool.lost == 0
    spool.close()


def test_over_budget_the_oldest_go_and_are_counted(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 2_000)
    for i in range(500):
        assert spool.append(b"%05d" % i)
        assert bytes_in(tmp_path) <= 2_000
    kept = payloads(spool)
    assert kept == [b"%05d" % i for i in range(500 - len(kept), 500)]
    assert spool.stats.dropped == 500 - len(kept)
    assert len(kept) > 30
    spool.close()


def test_a_smaller_budget_counts_what_it_costs(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 10_000)
    for i in range(100):
        spool.append(b"%05d" % i)
    spool.ack(3)
    spool.close()
    spool = Spool(tmp_path, 3_000)
    assert bytes_in(tmp_path) <= 3_000
    assert 0 < len(spool) == 97 - spool.stats.dropped
    spool.close()


def test_a_record_larger_than_the_budget_costs_only_itself(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 2_000)
    spool.append(b"small")
    assert not spool.append(bytes(2_000))
    assert payloads(spool) == [b"small"]
    assert spool.stats.dropped == 1
    spool.close()


def test_what_was_dropped_may_still_be_acknowledged(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 1_000)
    spool.append(bytes(50))
    (record,) = spool.peek(1)
    for _ in range(40):
        spool.append(bytes(50))
    waiting = len(spool)
    spool.ack(record.id)
    assert (len(spool), spool.replayed) == (waiting, 0)
    spool.close()


def test_two_processes_do_not_share_a_folder(tmp_path: Path) -> None:
    spool = Spool(tmp_path, BIG)
    with pytest.raises(BlockingIOError):
        Spool(tmp_path, BIG)
    spool.close()
    Spool(tmp_path, BIG).close()


def test_files_of_others_are_left_alone(tmp_path: Path) -> None:
    others = [tmp_path / name for name in ("notes.spool", "README", "5.spool")]
    for path in others:
        path.write_text("not ours")
    spool = Spool(tmp_path, BIG)
    spool.append(b"x")
    assert payloads(spool) == [b"x"]
    spool.close()
    assert all(path.read_text() == "not ours" for path in others)


@pytest.mark.parametrize("part", [0, 1, 31, 36])
def test_a_full_disk_loses_what_does_not_fit_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: int
) -> None:
    spool = Spool(tmp_path, BIG)
    spool.append(b"before")
    real, calls = os.write, 0

    def full(fd: int, data: bytes) -> int:
        nonlocal calls
        calls += 1
        if part and calls % 2:
            return real(fd, data[:part])  # the last of the free blocks
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    assert not spool.append(b"during")
    assert not spool.append(b"during")
    monkeypatch.undo()
    assert spool.append(b"after")
    assert payloads(spool) == [b"before", b"after"]
    spool.ack(2)
    assert spool.stats._replace(bytes=0) == (2, 2, 2, 0, 0, 0, 0, None)
    spool.close()


def test_a_disk_that_cannot_even_undo_loses_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = Spool(tmp_path, BIG)
    spool.append(b"before")

    def refuse(*args: object) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    real, parts = os.write, [10]

    def part(fd: int, data: bytes) -> int:
        return real(fd, data[: parts.pop()]) if parts else refuse()

    monkeypatch.setattr(os, "write", part)
    monkeypatch.setattr(os, "ftruncate", refuse)
    assert not spool.append(b"during")
    parts.append(10)
    assert not spool.append(b"during")  # in a segment of its own, of which nothing stays
    monkeypatch.undo()
    assert spool.append(b"after")
    assert payloads(spool) == [b"before", b"after"]
    assert spool.stats.bytes == sum(path.stat().st_size for path in tmp_path.glob("*.spool"))
    spool.close()
    spool = Spool(tmp_path, BIG)
    assert payloads(spool) == [b"before", b"after"]
    assert spool.stats.torn == 0
    spool.close()


FULL = """
import resource, sys
from pathlib import Path
from flyball_collectors.spool import Spool
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
spool = Spool(Path(sys.argv[1]), 1 << 20)
kept = sum(spool.append(b"%06d" % i * 100, i) for i in range(50))
assert [r.time_ns for r in spool.peek(99)] == list(range(kept)), kept
spool.ack(kept)
print(kept, *spool.stats[:6])
spool.close()
"""


def test_the_kernel_itself_refuses(tmp_path: Path) -> None:
    """A limit on the size of files cuts the write that crosses it, as a full disk does."""
    script = [sys.executable, "-c", FULL, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    run = subprocess.run(script, env=environment, capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    assert run.stdout.split() == ["15", "15", "15", "35", "0", "0", "0"]


def test_a_disk_that_does_not_sync_is_reported_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(fd: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    spool = Spool(tmp_path, BIG, segment_bytes=100, sync_s=0.0)
    monkeypatch.setattr(os, "fdatasync", refuse)
    assert all(spool.append(b"%d" % i) for i in range(20))
    spool.close()
    assert caplog.text.count("cannot be synced") == 1


def test_everything_is_synced_in_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    real = os.fdatasync

    def note(fd: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{fd}"))
        real(fd)

    monkeypatch.setattr(os, "fdatasync", note)
    spool = Spool(tmp_path, BIG, segment_bytes=100, sync_s=0.01)
    for i in range(20):
        spool.append(b"%d" % i)
    spool.close()
    assert set(map(str, tmp_path.glob("*.spool"))) <= set(synced)


def test_messages_survive_whole() -> None:
    message = Message("t", b"k", b"\x00\xff", [("ce_id", b"1"), ("ce_id", b"")], 3)
    assert unpack(pack(message)) == message
    assert unpack(pack(message._replace(partition=None, headers=[]))).partition is None
    with pytest.raises(DecodeError):
        unpack(b"\xc1")


class Queue(RuleBasedStateMachine):
    """A spool beside a list: what waits is always the end of what was appended and not acknowledged."""

    budget = 3_000

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="flyball-spool-"))
        self.folder = self.root / "0"
        self.spool = Spool(self.folder, self.budget, segment_bytes=400, sync_s=0.0)
        self.waiting: list[bytes] = []
        self.lost = 0
        self.count = 0

    @rule(size=st.integers(0, 600))
    def append(self, size: int) -> None:
        self.count += 1
        payload = b"%d:" % self.count + bytes(size)
        assert self.spool.append(payload)
        self.waiting.append(payload)
        self.settle()

    @rule(n=st.integers(0, 5))
    def acknowledge(self, n: int) -> None:
        records = self.spool.peek(n)
        if records:
            self.spool.ack(records[-1].id)
            del self.waiting[: len(records)]

    @precondition(lambda self: self.count)
    @rule()
    def restart(self) -> None:
        self.spool.close()
        self.open(self.folder)

    @rule()
    def crash(self) -> None:
        """What a kill leaves: the files as they are."""
        copy = self.root / str(int(self.folder.name) + 1)
        shutil.copytree(self.folder, copy)
        self.spool.close()
        shutil.rmtree(self.folder)
        self.folder = copy
        self.open(copy)
        again = self.spool.peek(1_000)  # acknowledged ones may come again
        assert [r.payload for r in again][len(again) - len(self.waiting) :] == self.waiting
        if len(again) > len(self.waiting):
            self.spool.ack(again[-len(self.waiting) - 1].id)

    def open(self, folder: Path) -> None:
        self.spool = Spool(folder, self.budget, segment_bytes=400, sync_s=0.0)
        self.lost = 0
        self.settle()

    def settle(self) -> None:
        """Let go of what the spool says it has dropped."""
        dropped = self.spool.lost - self.lost
        self.lost += dropped
        del self.waiting[:dropped]

    @invariant()
    def same(self) -> None:
        assert [r.payload for r in self.spool.peek(1_000)] == self.waiting
        assert len(self.spool) == len(self.waiting)

    @invariant()
    def within_budget(self) -> None:
        assert bytes_in(self.folder) <= self.budget

    def teardown(self) -> None:
        self.spool.close()
        shutil.rmtree(self.root)


Queue.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestQueue = Queue.TestCase
