"""Spot machines that are reclaimed, in the closed loop: work has left them before they are gone."""

from pathlib import Path

import msgspec
from tests.streams.engine.closed_loop import ClosedLoop
from tests.streams.engine.scene import START_NS

from flyball_contracts.config import FleetConfig, load_config
from flyball_contracts.records import Migrate
from flyball_simulator import Fleet
from flyball_streams.engine.parameters import Parameters

ROOT = Path(__file__).resolve().parents[4]
LOADED = load_config(ROOT / "infra/examples/spot.yaml", FleetConfig)
FIRST = msgspec.structs.replace(LOADED.reclaims[0], from_s=200.0)
EXAMPLE = msgspec.structs.replace(LOADED, reclaims=(FIRST,), tick_s=5.0)


def test_what_has_notice_of_a_reclaim_is_moved_in_time_and_loses_nothing() -> None:
    loop, alone = ClosedLoop(EXAMPLE, Parameters()), Fleet(EXAMPLE, START_NS)
    gone_s = FIRST.from_s + FIRST.notice_s
    for _ in range(int(gone_s / EXAMPLE.tick_s)):
        alone.tick(alone.plant.index)
    loop.run(int(gone_s / EXAMPLE.tick_s))
    assert not [n for n in loop.fleet.nodes if n.node == FIRST.node and n.allocations], "it is empty when it goes"
    assert [n for n in alone.nodes if n.node == FIRST.node and n.allocations]
    moves = [d for d in loop.decisions if isinstance(d, Migrate)]
    assert {d.from_node for d in moves} == {FIRST.node}
    loop.run(int(120.0 / EXAMPLE.tick_s))
    for _ in range(int(120.0 / EXAMPLE.tick_s)):
        alone.tick(alone.plant.index)
    assert alone.account().lost_gpu_h > 0.1
    assert loop.fleet.account().lost_gpu_h < 0.1 * alone.account().lost_gpu_h


def test_a_node_that_the_platform_refuses_is_followed_by_another_within_the_notice() -> None:
    """Nobody has told the worker that the gang may not run in the pool whose nodes would fit it best."""
    spot, owned = EXAMPLE.pools
    other = msgspec.structs.replace(owned, name="gpu-0", nodes=2)
    loop = ClosedLoop(msgspec.structs.replace(EXAMPLE, pools=(other, spot, owned)), Parameters())
    loop.run(int((FIRST.from_s + FIRST.notice_s) / EXAMPLE.tick_s))
    assert not [n for n in loop.fleet.nodes if n.node == FIRST.node and n.allocations], "it is empty when it goes"
    moves = [d for d in loop.decisions if isinstance(d, Migrate) and d.workload == "llm-pretrain"]
    ends = {o.decision: o for o in loop.outcomes if o.final}
    refused, *others = moves
    assert ends[refused.id].unsuitable_nodes == ("gpu-0-001", "gpu-0-002")
    assert refused.to_node in ends[refused.id].unsuitable_nodes
    assert [ends[d.id].status for d in others] == ["done"]
    (moved,) = others
    assert (moved.time_ns - refused.time_ns) / 1e9 <= 2 * EXAMPLE.tick_s
    assert "without 2 nodes on which the platform does not let it run" in moved.reason
