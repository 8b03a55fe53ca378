"""When deferrable jobs run: the cheapest slots before the deadline, and pause and resume as planned."""

from itertools import combinations
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings, strategies as st
from tests.streams.engine.scene import CELL, CONFIG, START_NS, Cell, Out, Values, inventory, spec, told

from flyball_contracts.config import TimingConfig
from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import Allocation, Plan, Preempt, Scale, Signal, WorkloadSpec
from flyball_streams.engine.workload import timing

SLOT_S = 60.0
SLOTS = 6
TIMING = TimingConfig(slot_s=SLOT_S, horizon_s=SLOTS * SLOT_S, least_saving=0.05)
SLOT_NS = round(SLOT_S * NS_PER_S)
BEGIN_NS = START_NS // SLOT_NS * SLOT_NS


def curve(costs: list[float], published_ns: int = START_NS) -> Signal:
    return Signal(
        zone="z", kind="carbon_intensity", published_ns=published_ns, start_ns=BEGIN_NS, step_s=SLOT_S, p50=tuple(costs)
    )


def job(needs_s: float, deadline_slots: int, **changes: Any) -> WorkloadSpec:
    given_: dict[str, Any] = {"kind": "batch", "interruptible": True, "gang_size": 2, "max_replicas": 2}
    deadline_ns = BEGIN_NS + deadline_slots * SLOT_NS
    return spec("job", deadline_ns=deadline_ns, duration_s=needs_s, **(given_ | changes))


def plan(costs: list[float], needs_s: float, deadline_slots: int, config: TimingConfig = TIMING) -> Plan:
    deferrable = timing.Deferrable(job(needs_s, deadline_slots), needs_s, "z")
    return timing.make_plan(deferrable, curve(costs), BEGIN_NS + 1, CELL, config)


costs_ = st.lists(st.integers(1, 900).map(float), min_size=SLOTS, max_size=SLOTS)


@given(costs_, st.integers(0, SLOTS + 2), st.integers(-1, SLOTS + 2))
@settings(deadline=None)
def test_no_choice_of_slots_is_cheaper(costs: list[float], need: int, deadline: int) -> None:
    made = plan(costs, need * SLOT_S, max(0, deadline))
    chosen = [i for i, run in enumerate(made.run) if run]
    window = range(min(max(0, deadline), SLOTS))
    assert made.feasible == (need <= len(window))
    if not made.feasible:
        assert chosen == list(range(min(need, SLOTS)))  # every slot counts: at once, and on to the end
        return
    assert len(chosen) == need
    assert set(chosen) <= set(window)
    best = min(sum(costs[i] for i in some) for some in combinations(window, need))
    at_once = sum(costs[:need])
    paid = sum(costs[i] for i in chosen)
    worth = at_once > 0 and (at_once - best) / at_once >= TIMING.least_saving
    assert paid == (best if worth else at_once)
    assert made.saving == pytest.approx((at_once - best) / at_once if worth else 0.0)


def test_a_saving_that_is_too_small_is_not_worth_a_pause() -> None:
    assert plan([100.0, 97.0] + [200.0] * 4, SLOT_S, 6).run[0]


def test_slots_that_nobody_knows_are_used_last() -> None:
    assert plan([500.0, 100.0], SLOT_S, 6).run == (False, True, False, False, False, False)
    unknown = plan([500.0, 100.0], 3 * SLOT_S, 6)
    assert unknown.run == (True, True, True, False, False, False)
    assert unknown.saving == 0.0


def test_the_slot_of_a_time_and_the_next_run() -> None:
    made = plan([500.0, 100.0, 500.0, 90.0, 500.0, 500.0], 2 * SLOT_S, 6)
    starts = [made.start_ns + i * SLOT_NS for i in range(SLOTS)]
    assert [timing.slot_of(made, t) for t in starts] == list(range(SLOTS))
    assert [timing.slot_of(made, t - 1) for t in starts] == [0, 0, 1, 2, 3, 4]
    assert timing.next_run(made, starts[0]) == starts[1]
    assert timing.next_run(made, starts[2]) == starts[3]
    assert timing.next_run(made, starts[4]) is None
    assert timing.mean_cost(made) == pytest.approx(95.0)


class Yard:
    """A cell with one deferrable job that does as it is told."""

    def __init__(self, workload: WorkloadSpec, *signals: Signal, running: bool = True) -> None:
        sizing = msgspec.structs.replace(CONFIG.sizing, hold_s=10.0)
        config = msgspec.structs.replace(CONFIG, timing=TIMING, sizing=sizing)
        self.held = [Allocation(workload="job", replica=f"{i}", devices=(i,)) for i in range(2)]
        self.node = inventory("node-1", 4, self.held if running else (), zone="z")
        self.cell = Cell(self.node, records=[workload, *signals], config=config)
        self.time = 0

    def until(self, tick: int, progress: float = 0.1) -> Out:
        values = Values({"hw.power": 300.0}, {}, {"flyball.workload.progress": progress, "flyball.workload.ready": 1.0})
        out: list[Any] = []
        while self.time < tick:
            made = self.cell.run(self.time, 1, values)
            out += made.messages
            self.time += 1
            for replicas in [*(d.replicas for d in made.of(Preempt)), *(d.replicas for d in made.of(Scale))]:
                self.obey(replicas)
        return Out(out)

    def obey(self, replicas: int) -> None:
        agent = self.cell.agents[0]
        now = msgspec.structs.replace(
            agent.inventory,
            epoch=agent.inventory.epoch + 1,
            time_ns=START_NS + self.time,
            allocations=tuple(self.held[:replicas]),
        )
        self.cell.feed(told(now))
        agent.inventory = now


OFFSET = (START_NS - BEGIN_NS) // NS_PER_S
"""Ticks by which the first one lies within its slot."""


def test_a_job_pauses_while_carbon_is_dear_and_goes_on_when_its_slot_comes() -> None:
    yard = Yard(job(2 * SLOT_S, 6), curve([500.0, 480.0, 100.0, 90.0, 500.0, 500.0]))
    early = yard.until(int(2 * SLOT_S - OFFSET - 5))
    (pause,) = early.of(Preempt)
    assert (pause.workload, pause.replicas, pause.until_ns) == ("job", 0, BEGIN_NS + 2 * SLOT_NS)
    assert early.of(Scale) == []
    late = yard.until(int(2 * SLOT_S - OFFSET + 5))
    (start,) = late.of(Scale)
    assert (start.workload, start.replicas) == ("job", 2)
    assert start.time_ns >= BEGIN_NS + 2 * SLOT_NS


def test_a_deadline_that_cannot_be_kept_starts_the_job_at_once_and_never_pauses_it() -> None:
    yard = Yard(job(8 * SLOT_S, 4), curve([500.0, 1.0, 1.0, 1.0, 1.0, 1.0]), running=False)
    out = yard.until(100)
    assert [s.replicas for s in out.of(Scale)] == [2]
    assert out.of(Preempt) == []
    assert not any(p.feasible for p in out.of(Plan))


def test_a_deadline_that_has_passed_is_no_reason_never_to_run() -> None:
    yard = Yard(job(2 * SLOT_S, -10), curve([500.0] * 6), running=False)
    assert [s.replicas for s in yard.until(10).of(Scale)] == [2]


def test_without_a_curve_there_is_no_plan_and_nothing_changes() -> None:
    out = Yard(job(2 * SLOT_S, 6)).until(70)
    assert (out.of(Plan), out.wishes()) == ([], [])


def test_a_plan_is_said_once_a_slot_and_when_the_curve_changes() -> None:
    yard = Yard(job(2 * SLOT_S, 6), curve([100.0] * 6))
    first = yard.until(int(SLOT_S - OFFSET + 6)).of(Plan)
    assert len(first) == 2
    yard.cell.feed(told(curve([90.0] * 6, published_ns=START_NS + 1)))
    assert len(yard.until(yard.time + 5).of(Plan)) == 1


def test_a_job_that_is_not_a_gang_runs_with_all_it_may_have() -> None:
    yard = Yard(job(8 * SLOT_S, 4, gang_size=1), curve([5.0] * 6), running=False)
    assert [s.replicas for s in yard.until(10).of(Scale)] == [2]


def test_what_is_done_is_not_planned_again() -> None:
    yard = Yard(job(2 * SLOT_S, 6), curve([500.0, 480.0, 100.0, 90.0, 500.0, 500.0]))
    out = yard.until(20, progress=1.0)
    assert out.wishes() == []


def test_a_job_that_is_gone_is_forgotten() -> None:
    yard = Yard(job(2 * SLOT_S, 6), curve([100.0] * 6))
    yard.until(8)
    held = yard.cell.engine.workloads[0].cells[CELL]
    assert set(held.plans) == {"job"}
    yard.cell.feed(told(job(2 * SLOT_S, 6, removed=True, time_ns=START_NS + 1)))
    yard.until(10)
    assert (held.plans, held.progress, held.basis) == ({}, {}, {})
