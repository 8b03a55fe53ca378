"""Tables are folded by one rule: whoever reads, in whatever order, has the same rows."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from flyball_contracts.records import Inventory, NodeEvent, Outcome, Signal, WorkloadSpec
from flyball_contracts.tables import Row, Tables, supersedes, time_of
from flyball_contracts.topics import INVENTORY, OUTCOMES, SIGNALS, WORKLOADS

OUTCOME: dict[str, Any] = {
    "type": "Scale", "target": "c/w", "cell": "c", "workload": "w", "mode": "live", "driver": "simulated",
}  # fmt: skip


def node(time_ns: int, epoch: int = 1, **changes: Any) -> Inventory:
    return Inventory(node="n", cell="c", time_ns=time_ns, epoch=epoch, **changes)


def spec(time_ns: int, **changes: Any) -> WorkloadSpec:
    return WorkloadSpec(workload="w", cell="c", time_ns=time_ns, kind="batch", **changes)


def curve(published_ns: int, p50: float = 1.0, zone: str = "DE") -> Signal:
    return Signal(zone=zone, kind="carbon_intensity", published_ns=published_ns, start_ns=0, step_s=3600.0, p50=(p50,))


def outcome(time_ns: int, status: Any, decision: str = "d", **changes: Any) -> Outcome:
    identity = f"{decision}-{time_ns}-{status}"
    return Outcome(id=identity, decision=decision, time_ns=time_ns, status=status, **OUTCOME, **changes)


times = st.integers(0, 3)
rows: st.SearchStrategy[Row] = st.one_of(
    st.builds(node, times, st.integers(1, 2), schedulable=st.booleans()),
    st.builds(spec, times, priority=st.integers(0, 2), removed=st.booleans()),
    st.builds(curve, times, st.sampled_from((1.0, 2.0)), st.sampled_from(("DE", "FR"))),
    st.builds(outcome, times, st.sampled_from(("accepted", "running", "done", "failed")), st.sampled_from("de")),
)


def content(tables: Tables) -> tuple[Any, ...]:
    return tables.inventories, tables.workloads, tables.signals, tables.outcomes


def folded(reported: list[Row]) -> Tables:
    tables = Tables()
    for row in reported:
        tables.apply(row)
    return tables


@given(st.lists(rows, max_size=12), st.randoms(use_true_random=False))
def test_the_order_of_reading_changes_nothing_and_nothing_counts_twice(reported: list[Row], random: Any) -> None:
    mixed = reported + reported[::2]
    random.shuffle(mixed)
    assert content(folded(reported)) == content(folded(mixed))


@given(rows, rows)
def test_of_two_rows_one_is_the_newer_or_they_are_equal(a: Row, b: Row) -> None:
    if type(a) is type(b):
        assert supersedes(a, b) + supersedes(b, a) == (a != b)


def test_the_newest_by_its_own_time_counts() -> None:
    tables = folded([node(5), spec(5), curve(5)])
    assert not any(map(tables.apply, (node(4, epoch=9), spec(4, priority=9), curve(4))))
    assert tables.inventories["n"].time_ns == 5
    assert tables.apply(node(5, epoch=2))
    assert not tables.apply(node(5, epoch=2))
    assert tables.apply(curve(6))
    assert time_of(tables.signals["DE", "carbon_intensity"]) == 6


def test_the_last_word_on_a_decision_is_not_taken_back() -> None:
    tables = folded([outcome(9, "done"), outcome(12, "running"), outcome(11, "accepted")])
    assert tables.outcomes["d"].status == "done"
    assert tables.apply(outcome(10, "failed"))
    assert folded([outcome(3, "running"), outcome(3, "accepted")]).outcomes["d"].status == "running"


def test_outcomes_are_bounded() -> None:
    tables = Tables(most_outcomes=2)
    for i in range(5):
        tables.apply(outcome(i, "done", decision=str(i)))
    assert list(tables.outcomes) == ["3", "4"]


def test_a_removed_workload_stays_removed() -> None:
    tables = folded([spec(2, removed=True), spec(1)])
    assert tables.spec("w") is None
    assert tables.apply(spec(3))
    assert tables.spec("w") == spec(3)
    assert tables.spec("other") is None


@pytest.mark.parametrize(("topic", "key"), [(INVENTORY, "n"), (WORKLOADS, "w"), (SIGNALS, "DE")])
def test_a_tombstone_deletes_what_was_read_before_it(topic: Any, key: str) -> None:
    tables = folded([node(5), spec(5), curve(5), curve(5, zone="FR"), outcome(5, "done")])
    rows_before = sum(map(len, content(tables)))
    assert tables.forget(topic.name, key)
    assert not tables.forget(topic.name, key)
    assert sum(map(len, content(tables))) == rows_before - 1
    assert any(map(tables.apply, (node(1), spec(1), curve(1))))


def test_what_is_no_row_changes_nothing() -> None:
    tables = Tables()
    assert not tables.apply(NodeEvent(id="e", node="n", time_ns=1, kind="xid"))
    assert not tables.forget(OUTCOMES.name, "c/w")
    assert msgspec.json.encode([list(table) for table in content(tables)]) == b"[[],[],[],[]]"
