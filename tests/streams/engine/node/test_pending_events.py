"""Events that wait for their tick: none of a known node is lost, however many wait."""

import pytest
from tests.streams.engine.scene import PERIOD_NS, START_NS, Cell, incoming_records, inventory

from flyball_contracts.records import NodeEvent, ProposalTick


def test_of_too_many_events_from_the_future_the_first_count_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flyball_streams.engine.node.events.MAX_PENDING", 2)
    cell = Cell(inventory("node-1", 4))
    cell.run(0, 5)
    ahead = [
        NodeEvent(
            id=f"e{i}", node="node-1", device=f"node-1/{i}", kind="throttle", severity="warning",
            time_ns=START_NS + 9 * PERIOD_NS,
        )
        for i in range(4)
    ]  # fmt: skip
    cell.feed(incoming_records(*ahead))
    out = cell.run(5, 8)
    counted = [(p.tick.index, s.record) for p in out.of(ProposalTick) for s in p.symptoms if s.detector == "throttle"]
    due = START_NS // PERIOD_NS + 9
    assert [name for index, name in counted if index <= due - 4] == ["e0", "e1"]
    assert [name for index, name in counted if index == due] == ["e2", "e3"]
    assert len(counted) == 4
