"""What two sets of decisions have in common: each is in one pair, and moves and changes are told apart."""

from collections import Counter
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, strategies as st

from flyball_contracts.errors import RecordingError
from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import AnyDecision, Migrate, Scale
from flyball_streams.recording.difference import Replicas, compare, read_decisions, requested_replicas

TARGETS = ("west/chat", "west/search")


def scale(identity: str, time_s: int, replicas: int, *, before: int = 1, target: str = TARGETS[0]) -> Scale:
    cell, _, workload = target.partition("/")
    return Scale(
        id=identity, target=target, cell=cell, workload=workload, time_ns=time_s * NS_PER_S,
        expires_ns=(time_s + 60) * NS_PER_S, reason="because", confidence=0.9, policy="test",
        replicas=replicas, replicas_before=before,
    )  # fmt: skip


def migrate(identity: str, time_s: int) -> Migrate:
    return Migrate(
        id=identity, target=TARGETS[0], cell="west", workload="chat", time_ns=time_s * NS_PER_S,
        expires_ns=(time_s + 60) * NS_PER_S, reason="because", confidence=0.9, policy="test",
        replica="chat-1", from_node="n1", from_device="n1/0",
    )  # fmt: skip


@st.composite
def sides(draw: st.DrawFn) -> tuple[list[Scale], list[Scale]]:
    made = st.builds(
        scale, st.uuids().map(str), st.integers(0, 600), st.integers(0, 4), target=st.sampled_from(TARGETS)
    )
    one = st.lists(made, max_size=12, unique_by=lambda d: d.id)
    old, new = draw(one), draw(one)
    return old, new + draw(st.lists(st.sampled_from(old), unique_by=lambda d: d.id) if old else st.just([]))


@given(sides())
def test_each_decision_is_in_one_pair(both: tuple[list[Scale], list[Scale]]) -> None:
    old, new = both
    pairs = compare(old, new)
    assert Counter(pair.old.id for pair in pairs if pair.old) == Counter(d.id for d in old)
    assert Counter(pair.new.id for pair in pairs if pair.new) == Counter(d.id for d in new)
    assert [p.either.time_ns for p in pairs] == sorted(p.either.time_ns for p in pairs)
    for pair in pairs:
        assert (pair.verdict == "added") == (pair.old is None)
        assert (pair.verdict == "gone") == (pair.new is None)
        if pair.old is not None and pair.new is not None:
            assert pair.old.target == pair.new.target
            assert pair.old.id == pair.new.id or abs(pair.old.time_ns - pair.new.time_ns) <= 60 * NS_PER_S


@given(sides())
def test_what_is_compared_with_itself_is_the_same(both: tuple[list[Scale], list[Scale]]) -> None:
    assert {pair.verdict for pair in compare(both[1], both[1])} <= {"same"}


def test_the_verdicts() -> None:
    old: list[AnyDecision] = [
        scale("a", 0, 2),
        scale("b", 100, 3),
        scale("c", 200, 4),
        scale("d", 300, 5),
        migrate("e", 300),
    ]
    new: list[AnyDecision] = [
        scale("a", 0, 2),
        scale("x", 130, 3),
        scale("c", 200, 6),
        scale("y", 400, 5),
        migrate("e", 300),
    ]
    found = [(p.verdict, p.either.id) for p in compare(old, new)]
    assert found == [("same", "a"), ("moved", "b"), ("changed", "c"), ("gone", "d"), ("same", "e"), ("added", "y")]


def test_the_nearest_in_time_is_the_other_one() -> None:
    (far, near) = compare([scale("a", 100, 2)], [scale("x", 60, 2), scale("y", 110, 2)])
    assert (far.verdict, near.verdict) == ("added", "moved")
    assert near.new is not None
    assert near.new.id == "y"


def test_mean_replicas_are_over_time() -> None:
    old = [scale("a", 0, 3, before=1), scale("b", 60, 1, before=3)]
    new = [scale("c", 30, 2, before=1), scale("d", 120, 2, target=TARGETS[1], before=4)]
    assert requested_replicas(old, new) == {
        TARGETS[0]: Replicas(2.0, (30 * 1 + 90 * 2) / 120),
        TARGETS[1]: Replicas(4.0, 4.0),
    }
    assert requested_replicas([], []) == {}


def test_lines_are_read_by_time_and_each_id_once(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    lines = [msgspec.json.encode(d) for d in (scale("b", 5, 2), scale("a", 1, 2), scale("b", 5, 2))]
    path.write_bytes(b"\n".join(lines) + b"\n\n")
    assert [d.id for d in read_decisions(path)] == ["a", "b"]


def test_what_is_no_decision_is_named_by_its_line(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(msgspec.json.encode(scale("a", 1, 2)) + b"\n{}\n")
    with pytest.raises(RecordingError, match=r"a\.jsonl:2: this line is not a decision"):
        read_decisions(path)
    with pytest.raises(RecordingError, match="cannot be read"):
        read_decisions(tmp_path / "missing")
