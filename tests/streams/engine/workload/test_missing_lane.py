"""A lane whose only node has died holds up the sizing of its cell for ten minutes, however long a tick is."""

import pytest
from tests.streams.engine.scene import CONFIG, FIRST, ONE, Agent, Out, Values, incoming, inventory, spec

from flyball_contracts.codec import record_message
from flyball_contracts.partitioner import partition_of
from flyball_contracts.records import Allocation, Scale
from flyball_contracts.topics import TELEMETRY
from flyball_streams.engine import Engine

PARTITIONS = ONE | {TELEMETRY.name: 2}
NAMES = {partition_of(name.encode(), 2): name for name in ("node-0", "node-1", "node-2", "node-3")}
WARM_TICKS = 20
GONE_S = 600


@pytest.mark.parametrize("period_s", [10, 60])
def test_a_workload_is_sized_again_ten_minutes_after_the_only_node_of_another_lane_has_died(period_s: int) -> None:
    agents = {
        workload: Agent(
            inventory(NAMES[place], 8, [Allocation(workload=workload, replica="0", devices=(0,))]), period_s=period_s
        )
        for place, workload in enumerate(("chat", "other"))
    }
    served = [spec(name, capacity_per_replica=1.0, min_replicas=1, cold_start_s=30.0) for name in agents]
    nodes = [agent.inventory for agent in agents.values()]
    engine = Engine(CONFIG, PARTITIONS)
    engine.feed([incoming(record_message(record, "/test"), PARTITIONS) for record in (*nodes, *served)])
    wanted: list[int] = []
    for i in range(WARM_TICKS + GONE_S // period_s + 60):
        died = i >= WARM_TICKS
        shown = {"flyball.workload.ready": 1.0, "flyball.workload.work.rate": 3.0 if died else 0.5}
        at = period_s * (-(-FIRST // period_s) + i) - FIRST
        batch = [
            frame._replace(partition=place)
            for place, agent in enumerate(agents.values())
            if not (died and place)
            for frame in agent.frames(at, Values(workload=shown), schemas=(3,))
        ]
        wanted += [d.replicas for d in Out(engine.feed(batch)).of(Scale) if d.workload == "chat"]
    assert max(wanted, default=0) >= 4
