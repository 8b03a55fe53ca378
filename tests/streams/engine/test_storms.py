"""The demo's fleet hears no storms: one decision a minute and target, and no refusal is answered by the same."""

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import example, given, settings, strategies as st
from tests.streams.engine.cell.arbiter_harness import ArbiterHarness, move, node, outcome
from tests.streams.engine.cell.platform import proposal
from tests.streams.engine.closed_loop import ClosedLoop
from tests.streams.engine.scene import CELL, spec, tick
from tests.streams.engine.storms import is_urgent, storms

from flyball_contracts.config import FleetConfig
from flyball_contracts.records import AnyDecision, Check, Migrate, Preempt, Scale
from flyball_streams.engine.cell.arbiter import Arbiter
from flyball_streams.engine.cell.memory import Memory
from flyball_streams.engine.cell.rate_limit import RateLimit, WaitForVictims
from flyball_streams.engine.packing import pack_struct, unpack_struct
from flyball_streams.engine.parameters import Parameters

TICK_S = 10.0


@pytest.mark.parametrize(("refuse_every", "seconds"), [(0, 3600), (3, 1200)])
def test_the_demo_has_no_storms(refuse_every: int, seconds: int) -> None:
    worker = Parameters()
    loop = ClosedLoop(FleetConfig(tick_s=TICK_S), worker, refuse_every)
    loop.run(round(seconds / TICK_S))
    found = storms(loop.decisions, loop.outcomes, worker.sizing.cooldown_s)
    assert {type(d) for d in loop.decisions} == {Scale, Migrate, Preempt, Check}
    assert sum(target.refused for target in found) >= (3 if refuse_every else 0)
    assert [text for target in found for text in (*target.crowded, *target.repeated)] == []
    assert {target.name: target.most for target in found if target.most > 1} == {}


def harness(*records: object) -> ArbiterHarness:
    made = ArbiterHarness(*records)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    made.arbiter = Arbiter(made.arbiter.cell, Parameters(), made.directory)
    return made


def replicas(count: int, of: str = "a") -> dict[str, tuple[int, ...]]:
    return {f"{of}/{i}": (i,) for i in range(count)}


SETTLES_S = 5
"""A number that has not risen for so long is decided."""


def started(here: ArbiterHarness, workload: str, wanted: int, runs: dict[str, tuple[int, ...]]) -> None:
    """Let a workload grow, at ``SETTLES_S``."""
    assert [i for i in range(SETTLES_S) if here.want(i, workload, wanted)] == []
    (first,) = here.want(SETTLES_S, workload, wanted)
    here.report(first, "done")
    here.know(node("n", 40, runs, epoch=2))


def test_a_second_decision_waits_for_its_minute_however_much_is_needed() -> None:
    for wanted in (11, 40):
        here = harness(node("n", 40, replicas(8)), spec("a", max_replicas=40))
        started(here, "a", 9, replicas(9))
        assert [i for i in range(6, 90) if here.want(i, "a", wanted)] == [SETTLES_S + 60]


def test_growth_is_decided_when_it_has_stopped_and_after_a_quarter_of_the_interval_at_the_latest() -> None:
    for every, rises, expected in ((5, [9, 14, 14, 14], (10, 14)), (4, [9, 10, 11, 12, 13], (15, 12))):
        here = harness(node("n", 40, replicas(8)), spec("a", max_replicas=40))
        found: list[tuple[int, int]] = []
        for i in range(20):
            made = here.want(i, "a", rises[i // every])
            found += [(i, d.replicas) for d in made if isinstance(d, Scale)]
        assert found == [expected]


def test_a_workload_that_is_down_waits_for_nothing() -> None:
    here = harness(node("n", 40, replicas(2)), spec("a", max_replicas=40))
    (stopped,) = here.want(0, "a", 0)
    here.report(stopped, "done")
    here.know(node("n", 40, epoch=2))
    (woken,) = here.want(1, "a", 4)
    assert isinstance(woken, Scale)
    assert [i for i in range(2, 90) if here.want(i, "a", 9)] == [61], "it is on its way"


def test_a_failing_device_does_not_wait_and_a_straggling_one_does() -> None:
    for confidence, expected in ((0.95, [6]), (0.8, [65])):
        here = harness(node("n", 40, replicas(4)), node("m", 8), spec("a", max_replicas=16))
        started(here, "a", 5, replicas(5))
        assert [i for i in range(6, 90) if here.at(i, move(i, "a", "0", "n", 0, confidence))] == expected


def test_faults_that_follow_each_other_do_not_hold_growth_up_for_good() -> None:
    here = harness(node("n", 40, replicas(12)), node("m", 40), spec("a", max_replicas=40))
    grown, rescues = list[int](), 0
    for i in range(200):
        faults = [move(i, "a", str(i // 20), "n", i // 20)] if i % 20 == 0 else []
        for decision in here.at(i, *faults, proposal("a", tick(i), 14 + len(grown))):
            if isinstance(decision, Migrate):
                rescues += 1
            else:
                grown.append(i)
                here.report(decision, "done")
                here.know(node("n", 40, replicas(13 + len(grown)), epoch=1 + len(grown)))
    assert rescues == 10
    assert grown[:1] == [61], "a minute after the first, in which the fourth is rescued, and a tick"
    assert len(grown) >= 2


def test_who_needs_the_room_of_a_victim_waits_for_its_minute_unless_it_is_down() -> None:
    for count, expected in ((2, [65]), (0, [6])):
        first, then = ({f"low/{i}": (i + 2,) for i in range(n)} for n in (5, 38))
        here = harness(
            node("n", 40, replicas(count) | first), spec("a", priority=9, max_replicas=40),
            spec("low", max_replicas=38, interruptible=True),
        )  # fmt: skip
        started(here, "low", 38, replicas(count) | then)
        found = {i: [type(d) for d in made] for i in range(6, 100) if (made := here.want(i, "a", 8))}
        assert list(found)[:1] == expected
        assert found[expected[0]] == [Preempt, Scale]


@pytest.mark.parametrize(("priority", "expected"), [(0, (11, "other")), (5, (65, "low"))])
def test_another_victim_is_taken_instead_unless_it_is_more_important(priority: int, expected: tuple[int, str]) -> None:
    first, then = ({f"low/{i}": (i + 2,) for i in range(n)} for n in (5, 30))
    other = {f"other/{i}": (i + 32,) for i in range(8)}
    here = harness(
        node("n", 40, replicas(2) | first | other), spec("a", priority=9, max_replicas=40),
        spec("low", max_replicas=30, interruptible=True),
        spec("other", priority=priority, max_replicas=8, interruptible=True),
    )  # fmt: skip
    started(here, "low", 30, replicas(2) | then | other)
    found = [(i, made) for i in range(6, 100) if (made := here.want(i, "a", 8))]
    at, victim = expected
    assert found[0][0] == at
    assert [(d.workload, type(d)) for d in found[0][1]] == [(victim, Preempt), ("a", Scale)]


TURNS = st.lists(st.integers(1, 3), min_size=24, max_size=24)
"""Replicas that a workload wants, every 10 s anew."""
BY_TURNS = [*[2] * 6, *[3] * 6, *[2] * 12], [*[3] * 3, *[2] * 6, *[3] * 6, *[2] * 9]


@given(st.integers(0, 140), st.tuples(TURNS, TURNS), st.integers(0, 5), st.sampled_from([10, 60]))
@example(31, BY_TURNS, 0, 60)
@example(95, ([2, 3] * 12, [2, 3] * 12), 5, 10).via("their budgets are used up")
@settings(max_examples=20, deadline=None)
def test_a_wait_for_victims_ends_whatever_is_decided_about_them(
    begin: int, turns: tuple[Sequence[int], Sequence[int]], priority: int, interval_s: int
) -> None:
    """Growth that needs the room of two others, about which something is decided again and again."""
    sizing = msgspec.structs.replace(Parameters().sizing, cooldown_s=5.0, reversal_cooldown_s=5.0)
    config = msgspec.structs.replace(Parameters(), sizing=sizing, decision_interval_s=float(interval_s))
    here = ArbiterHarness(
        node("m", 5, {"a/0": (0, 1, 2, 3, 4)}), spec("a", priority=9, gpus_per_replica=5.0),
        spec("low", max_replicas=3, interruptible=True),
        spec("other", max_replicas=3, interruptible=True, priority=priority),
    )  # fmt: skip
    here.arbiter = Arbiter(CELL, config, here.directory)
    held = {f"{name}/{i}": (i + first,) for name, first in (("low", 0), ("other", 3)) for i in range(3)}
    last: dict[str, int] = {"low": -interval_s, "other": -interval_s}
    for i in range(
        begin + round(1.25 * interval_s) + 2
    ):  # it rises for at most a quarter of the interval, and waits for at most one
        here.know(node("n", 6, held, epoch=i + 1))
        here.arbiter.memory = unpack_struct(pack_struct(here.arbiter.memory), Memory)
        proposals = [proposal(name, tick(i), of[i // 10]) for name, of in zip(("low", "other"), turns, strict=True)]
        made = here.at(i, *proposals, *([proposal("a", tick(i), 2)] if i >= begin else []))
        if any(d.workload == "a" for d in made):
            waited = i - begin >= interval_s
            assert all(waited or i - last[d.workload] >= interval_s for d in made if isinstance(d, Preempt))
            return
        for d in made:
            assert isinstance(d, Scale)
            assert i - last[d.workload] >= interval_s
            last[d.workload] = i
            here.report(d, "done")
            kept = [row for name, row in held.items() if not name.startswith(d.workload)]
            free = [row for row in range(6) if (row,) not in kept]
            held = {name: row for name, row in held.items() if not name.startswith(d.workload)}
            held |= {f"{d.workload}/{n}": (free[n],) for n in range(d.replicas)}
    pytest.fail("it waits for ever")


def test_a_wait_for_victims_ends_though_a_tick_is_longer_than_the_interval() -> None:
    waits: dict[str, WaitForVictims] = {}
    period_ns = 20 * 10**9
    for tick_ns in range(0, 3 * period_ns, period_ns):
        limit = RateLimit({}, {}, {}, waits, 10.0, tick_ns, period_ns)
        assert limit.has_waited("w") == (tick_ns > 0)
        limit.note_wait("w")


def test_nothing_else_is_decided_about_a_workload_in_the_tick_of_its_rescue() -> None:
    """The first rescue holds others up for a minute, those of the next minute for their tick only."""
    here = harness(node("n", 40, replicas(8)), node("m", 8), spec("a", max_replicas=16))
    here.at(0, move(0, "a", "0", "n", 0))
    made = here.at(70, move(70, "a", "1", "n", 1), proposal("a", tick(70), 3))
    assert [type(d) for d in made] == [Migrate]
    (scale,) = here.at(71, proposal("a", tick(71), 3))
    assert isinstance(scale, Scale)


def test_what_is_down_takes_no_victim_of_a_workload_in_the_tick_of_its_rescue() -> None:
    here = harness(
        node("n", 8, replicas(8)), node("m", 1), spec("a", min_replicas=0, max_replicas=8, interruptible=True),
        spec("b", priority=9, gpus_per_replica=2),
    )  # fmt: skip
    first = here.at(0, move(0, "a", "0", "n", 0), proposal("b", tick(0), 1))
    assert [(type(d), d.workload) for d in first] == [(Migrate, "a")]
    (preempt, _) = here.at(1, proposal("b", tick(1), 1))
    assert isinstance(preempt, Preempt)
    assert "0" not in preempt.victims


def test_what_waits_is_in_the_snapshot() -> None:
    here = harness(node("n", 40, replicas(8)), spec("a", max_replicas=40))

    def restart() -> None:
        here.arbiter.memory = unpack_struct(pack_struct(here.arbiter.memory), Memory)

    here.want(0, "a", 9)
    restart()
    assert [i for i in range(3, 10) if here.want(i, "a", 9)] == [SETTLES_S]
    restart()
    assert [i for i in range(10, 90) if here.want(i, "a", 11)] == [SETTLES_S + 60]


def decided(at_s: int, before: int, after: int) -> AnyDecision:
    here = ArbiterHarness(node("n", 40, replicas(before)), spec("a", max_replicas=40))
    (one,) = here.want(at_s, "a", after)
    return one


def test_the_oracle_sees_storms_and_repetitions() -> None:
    first, crowded, urgent, later = decided(0, 8, 9), decided(30, 8, 20), decided(50, 0, 4), decided(110, 8, 9)
    (target,) = storms([first, crowded, urgent, later], [], 15.0)
    assert (target.decisions, target.most, target.urgent, len(target.crowded)) == (4, 3, 1, 1)
    assert [is_urgent(d) for d in (first, urgent)] == [False, True]
    again = [decided(120 * i, 8, 9) for i in range(6)]
    (target,) = storms(again, [outcome(d, "refused") for d in again], 15.0)
    assert target.crowded == []
    assert len(target.repeated) == 1, "its window is 240 s after five refusals"
