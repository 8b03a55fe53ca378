import random

import cramjam
import msgspec
import pytest

from flyball_contracts.records import Snapshot
from flyball_streams.worker import snapshots
from flyball_streams.worker.snapshots import CompressionError, SnapshotShelf, cut, state_of


def parts(offset: int, time_ns: int = 1, size: int = 1000, partition: int = 0) -> list[Snapshot]:
    state = random.Random(offset).randbytes(size)  # does not compress
    return cut("app:node", partition, "1", time_ns, {"t/0": offset, "e/0": 1}, state)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "PART_BYTES", 300)


def newest(*put: Snapshot) -> int | None:
    """Offset of the newest whole snapshot."""
    shelf = SnapshotShelf()
    for part in put:
        shelf.put(part)
    found = shelf.newest("app:node", 0)
    if found is None:
        return None
    offset = found.offsets["t/0"]
    assert state_of(found) == random.Random(offset).randbytes(1000)
    return offset


def test_parts_in_any_order_make_the_whole() -> None:
    whole = parts(5)
    assert len(whole) == 4
    for seed in range(5):
        mixed = random.Random(seed).sample(whole, len(whole))
        assert newest(*mixed) == 5
        assert newest(*mixed[:-1]) is None


def test_old_parts_between_new_ones_do_not_matter() -> None:
    # The parts of a snapshot lie in different partitions, and each partition has older ones before it.
    old, new = parts(5, time_ns=1), parts(9, time_ns=2)
    both = old + new
    for seed in range(20):
        assert newest(*random.Random(seed).sample(both, len(both))) == 9
    assert newest(*old, *new[:-1]) == 5


def test_what_has_read_further_is_newer_whatever_the_clocks_say() -> None:
    assert newest(*parts(9, time_ns=1), *parts(5, time_ns=2)) == 9


def test_nonsense_parts_are_ignored() -> None:
    good = parts(5)
    assert newest(msgspec.structs.replace(good[0], part=7), *good) == 5
    assert SnapshotShelf().newest("app:node", 0) is None


def test_damaged_state_is_an_error_of_its_own() -> None:
    (one,) = cut("app:node", 0, "1", 1, {}, b"")
    with pytest.raises(CompressionError):
        state_of(msgspec.structs.replace(one, state=b"no zstd"))


def test_a_state_that_unpacks_to_gigabytes_is_refused_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    gigabyte = bytes(cramjam.zstd.compress(bytes(1 << 28), 1)) * 24  # 6 GiB in 200 kB
    assert len(gigabyte) < 250_000
    (one,) = cut("app:node", 0, "1", 1, {}, b"state")
    monkeypatch.setattr(snapshots, "MOST_STATE_BYTES", 1 << 26)
    with pytest.raises(CompressionError, match="unpacks to more than 64 MiB"):
        state_of(msgspec.structs.replace(one, state=gigabyte))
    with pytest.raises(ValueError, match="a snapshot holds at most"):
        cut("app:node", 0, "1", 1, {}, bytes((1 << 26) + 1))
