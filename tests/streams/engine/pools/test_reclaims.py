"""Spot machines that are reclaimed, in the closed loop: work has left them before they are gone."""

from pathlib import Path

from tests.streams.engine.closed_loop import ClosedLoop
from tests.streams.engine.scene import START_NS

from flyball_contracts.config import FleetConfig, load_config
from flyball_contracts.records import Migrate
from flyball_simulator import Fleet
from flyball_streams.engine.parameters import Parameters

ROOT = Path(__file__).resolve().parents[4]
EXAMPLE = load_config(ROOT / "infra/examples/spot.yaml", FleetConfig)


def test_what_has_notice_of_a_reclaim_is_moved_in_time_and_loses_nothing() -> None:
    loop, alone = ClosedLoop(EXAMPLE, Parameters()), Fleet(EXAMPLE, START_NS)
    (first, *_) = EXAMPLE.reclaims
    gone_s = first.from_s + first.notice_s
    for _ in range(int(gone_s / EXAMPLE.tick_s)):
        alone.tick(alone.plant.index)
    loop.run(int(gone_s / EXAMPLE.tick_s))
    assert not [n for n in loop.fleet.nodes if n.node == first.node and n.allocations], "it is empty when it goes"
    assert [n for n in alone.nodes if n.node == first.node and n.allocations]
    moves = [d for d in loop.decisions if isinstance(d, Migrate)]
    assert {d.from_node for d in moves} == {first.node}
    loop.run(60)
    for _ in range(60):
        alone.tick(alone.plant.index)
    assert alone.account().lost_gpu_h > 0.1
    assert loop.fleet.account().lost_gpu_h < 0.1 * alone.account().lost_gpu_h
