"""What servers of language models say of their answers, from frame to decision."""

import msgspec
import numpy as np
import pytest
from tests.streams.engine.scene import CONFIG, Agent, Cell, Out, inventory, spec

from flyball_contracts.metrics import GPU, SERVING, WORKLOAD
from flyball_contracts.records import Allocation, Capacity, Demand, DemandTick, Objective, Scale
from flyball_streams.engine import Incoming
from flyball_streams.engine.workload.merge import merge

FIRST, FIRST_P99, NEXT, CACHE = 0, 1, 2, 4
CONFIGURED = msgspec.structs.replace(CONFIG, profile_every_ticks=5)


def serve(ticks: int, rates: list[float]) -> list[Out]:
    """Two replicas, the second of which says more than the first; a third says nothing."""
    held = tuple(Allocation(workload="chat", replica=f"chat-{i}", devices=(i,)) for i in range(3))
    agent = Agent(inventory("node-1", 4, allocations=held))
    objective = Objective(delay_s=2.0, token_s=0.05, first_token_s=0.5)
    served = spec("chat", capacity_per_replica=10.0, cold_start_s=20.0, max_replicas=9, objective=objective)
    cell = Cell(agent.inventory, records=[served], config=CONFIGURED)
    answers = np.full((3, len(SERVING)), np.nan, np.float32)
    answers[:2, [FIRST, FIRST_P99, NEXT, CACHE]] = [[0.1, 0.3, 0.02, 0.4], [0.3, 0.9, 0.04, 0.8]]
    outs: list[Out] = []
    for at in range(ticks):
        published = np.full((3, len(WORKLOAD)), np.nan, np.float32)
        published[:, WORKLOAD.column("flyball.workload.work.rate")] = rates[min(at, len(rates) - 1)]
        published[:, WORKLOAD.column("flyball.workload.ready")] = 1.0
        batch: list[Incoming] = []
        for values, schema in (
            (np.full((4, len(GPU)), np.nan, np.float32), GPU.schema),
            (published, WORKLOAD.schema),
            (answers, SERVING.schema),
        ):
            batch.append(agent.frame(at, values, schema, agent.seq))
            agent.seq += 1
        outs.append(cell.feed(batch))
    return outs


def test_from_the_frame_to_the_decision() -> None:
    outs = serve(70, [3.0] * 40 + [15.0])
    (demand,) = [d for t in outs[30].of(DemandTick) for d in t.demands if d.workload == "chat"]
    reported = (demand.first_token_s, demand.first_token_p99_s, demand.output_token_s, demand.kv_cache)
    assert reported == pytest.approx((0.2, 0.9, 0.03, 0.6))
    last = [c for out in outs for c in out.of(Capacity)][-1]
    assert (last.first_token_s, last.output_token_s, last.kv_cache) == pytest.approx((0.2, 0.03, 0.6))
    scale = next(s for out in outs for s in out.of(Scale) if s.replicas > 3)
    shown = {e.name: (e.value, e.expected) for e in scale.evidence}
    assert shown["gen_ai.server.time_to_first_token"] == pytest.approx((0.2, 0.5))
    assert shown["gen_ai.server.time_per_output_token"] == pytest.approx((0.03, 0.05))
    assert shown["kv_cache.utilization"][0] == pytest.approx(0.6)


def test_lanes_are_averaged_by_their_replicas() -> None:
    def lane(replicas: int, first_s: float | None, p99_s: float | None, cache: float | None) -> dict[str, Demand]:
        one = Demand(
            "chat", replicas, replicas, replicas, first_token_s=first_s, first_token_p99_s=p99_s, kv_cache=cache
        )
        return {"chat": one}

    both = merge({"node/0": lane(3, 0.1, 0.2, 0.5), "node/1": lane(1, 0.5, 0.6, None)})["chat"]
    assert (both.first_token_s, both.first_token_p99_s, both.kv_cache) == pytest.approx((0.2, 0.6, 0.5))
    assert both.output_token_s is None
    slow = {"chat": Demand("chat", 1, 1, 1, latency_s=2.0)}, {"chat": Demand("chat", 3, 3, 3, latency_s=1.0)}
    assert merge(dict(zip(("node/0", "node/1"), slow, strict=True)))["chat"].latency_s == 1.25
