"""Small things that a lane knows between two ticks are in its snapshot."""

import numpy as np
import pytest
from tests.streams.engine.scene import PERIOD_NS, START_NS, Cell, Out, Values, incoming_records, inventory, spec

from flyball_contracts.records import Allocation, NodeEvent
from flyball_streams.engine import Lane

EVENT = NodeEvent(
    id="e", node="node-1", time_ns=START_NS + 14 * PERIOD_NS, kind="xid", device="node-1/1", code=79, remedy="drain"
)


def cell() -> Cell:
    held = [Allocation(workload="serve", replica=f"{i}", devices=(i,)) for i in range(3)]
    return Cell(inventory("node-1", 4, held), records=[spec("serve", capacity_per_replica=10.0)])


def values(index: int) -> Values:
    """A device that is sick, asks for a recovery and is recovered; work that is missing for a while."""
    action = np.array([2.0 if 8 <= index < 12 else 0.0, 0, 0, 0], np.float32)
    errors = np.array([index == 7, 0, 0, 0], np.float32)
    work = {} if 9 <= index < 13 else {"flyball.workload.work.rate": 4.0 + index % 3}
    return Values(
        {
            "nvidia.gpu.recovery_action": action,
            "hw.errors{type=uncorrected}": errors,
            "hw.gpu.utilization{task=general}": 0.4,
            "nvidia.gpu.clock.frequency{clock=sm}": 1e9,
        },
        {"system.cpu.utilization": 0.1 * (index % 5)},
        work,
    )


def run(cut: int | None) -> list[Out]:
    here = cell()
    here.feed(incoming_records(EVENT))
    outs: list[Out] = []
    for index in range(60):
        if index == cut:
            there = cell()
            there.run(0, 1)  # so that it has its lanes
            for mine, theirs in zip(lanes(there), lanes(here), strict=True):
                mine.restore(theirs.snapshot())
            there.agents = here.agents
            here = there
        if index not in (41, 42):  # nobody reports for two ticks
            outs.append(here.run(index, 1, values(index)))
    return outs


def lanes(of: Cell) -> list[Lane]:
    return [*of.engine.nodes.values(), *of.engine.workloads, *of.engine.cells]


@pytest.fixture(scope="module")
def whole() -> list[Out]:
    return run(None)


@pytest.mark.parametrize("cut", [1, 6, 8, 9, 10, 12, 14, 15, 43])
def test_nobody_can_tell_that_it_was_restarted(cut: int, whole: list[Out]) -> None:
    assert [out.messages for out in run(cut)] == [out.messages for out in whole]
