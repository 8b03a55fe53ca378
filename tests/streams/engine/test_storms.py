"""The demo's fleet hears no storms: one decision a minute and target, and no refusal is answered by the same."""

import pytest
from tests.streams.engine.cell.arbiter_harness import ArbiterHarness, move, node, outcome
from tests.streams.engine.closed_loop import ClosedLoop
from tests.streams.engine.scene import spec
from tests.streams.engine.storms import is_urgent, storms

from flyball_contracts.config import FleetConfig
from flyball_contracts.records import AnyDecision, Check, Migrate, Preempt, Scale
from flyball_streams.engine.cell.arbiter import Arbiter
from flyball_streams.engine.cell.memory import Memory
from flyball_streams.engine.packing import pack_struct, unpack_struct
from flyball_streams.engine.parameters import Parameters

TICK_S = 5.0
TICKS = 240


@pytest.mark.parametrize("refuse_every", [0, 3])
def test_the_demo_has_no_storms(refuse_every: int) -> None:
    worker = Parameters()
    loop = ClosedLoop(FleetConfig(tick_s=TICK_S), worker, refuse_every)
    loop.run(TICKS)
    found = storms(loop.decisions, loop.outcomes, worker.sizing.cooldown_s)
    assert {type(d) for d in loop.decisions} == {Scale, Migrate, Preempt, Check}
    assert sum(target.refused for target in found) >= (3 if refuse_every else 0)
    assert [text for target in found for text in (*target.crowded, *target.repeated)] == []


def harness(*records: object) -> ArbiterHarness:
    made = ArbiterHarness(*records)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    made.arbiter = Arbiter(made.arbiter.cell, Parameters(), made.directory)
    return made


def replicas(count: int, of: str = "a") -> dict[str, tuple[int, ...]]:
    return {f"{of}/{i}": (i,) for i in range(count)}


def test_a_second_decision_waits_for_its_minute() -> None:
    here = harness(node("n", 40, replicas(8)), spec("a", max_replicas=40))
    (first,) = here.want(0, "a", 9)
    here.report(first, "done")
    here.know(node("n", 40, replicas(9), epoch=2))
    assert [i for i in range(1, 90) if here.want(i, "a", 11)] == [60]


def test_who_needs_much_more_does_not_wait() -> None:
    here = harness(node("n", 40, replicas(8)), spec("a", max_replicas=40))
    here.want(0, "a", 9)
    assert [i for i in range(1, 90) if here.want(i, "a", 12)] == [15], "after the cooldown"


def test_a_failing_device_does_not_wait_and_a_straggling_one_does() -> None:
    for confidence, expected in ((0.95, [1]), (0.8, [60])):
        here = harness(node("n", 8, replicas(4)), node("m", 8), spec("a", max_replicas=16))
        here.want(0, "a", 5)
        assert [i for i in range(1, 90) if here.at(i, move(i, "a", "0", "n", 0, confidence))] == expected


def test_others_lack_room_and_do_not_wait() -> None:
    low = [{f"low/{i}": (i + 2,) for i in range(n)} for n in (5, 6)]
    here = harness(
        node("n", 8, replicas(2) | low[0]), spec("a", priority=9), spec("low", max_replicas=6, interruptible=True)
    )
    (scaled,) = here.want(0, "low", 6)
    here.report(scaled, "done")
    here.know(node("n", 8, replicas(2) | low[1], epoch=2))
    assert [type(d) for i in range(1, 20) for d in here.want(i, "a", 8)] == [Preempt, Scale]


def test_the_time_of_the_last_decision_is_in_the_snapshot() -> None:
    here = harness(node("n", 40, replicas(8)), spec("a", max_replicas=40))
    (first,) = here.want(0, "a", 9)
    here.report(first, "done")
    here.know(node("n", 40, replicas(9), epoch=2))
    here.at(1)
    here.arbiter.memory = unpack_struct(pack_struct(here.arbiter.memory), Memory)
    assert here.want(30, "a", 11) == []
    assert here.want(60, "a", 11)


def decided(at_s: int, before: int, after: int) -> AnyDecision:
    here = harness(node("n", 40, replicas(before)), spec("a", max_replicas=40))
    (one,) = here.want(at_s, "a", after)
    return one


def test_the_oracle_sees_storms_and_repetitions() -> None:
    first, crowded, urgent, later = decided(0, 8, 9), decided(30, 8, 10), decided(50, 8, 20), decided(110, 8, 9)
    (target,) = storms([first, crowded, urgent, later], [], 15.0)
    assert (target.decisions, target.most, target.urgent, len(target.crowded)) == (4, 3, 1, 1)
    assert [is_urgent(d) for d in (first, urgent)] == [False, True]
    again = [decided(120 * i, 8, 9) for i in range(6)]
    (target,) = storms(again, [outcome(d, "refused") for d in again], 15.0)
    assert target.crowded == []
    assert len(target.repeated) == 1, "its window is 240 s after five refusals"
