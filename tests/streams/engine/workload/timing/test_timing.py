"""When deferrable jobs run: the cheapest slots before the deadline, and pause and resume as planned."""

import math
from itertools import combinations, product
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from tests.streams.engine.scene import (
    CELL,
    CONFIG,
    START_NS,
    Cell,
    Out,
    Values,
    incoming_records,
    inventory,
    spec,
    tick,
)

from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import Allocation, Demand, Plan, Preempt, Proposal, Record, Scale, Signal, WorkloadSpec
from flyball_streams.engine import Directory
from flyball_streams.engine.workload.capacity.capacities import Capacities
from flyball_streams.engine.workload.proposals import Proposals
from flyball_streams.engine.workload.timing import schedule
from flyball_streams.engine.workload.timing.deferral import Deferral
from flyball_streams.engine.workload.timing.intensity import HOUR_NS, Week, course
from flyball_streams.engine.workload.timing.progress import Progress
from flyball_streams.engine.workload.timing.schedule import Curve

SLOT_S = 60.0
SLOTS = 6
SLOT_NS = round(SLOT_S * NS_PER_S)
BEGIN_NS = START_NS // SLOT_NS * SLOT_NS


def curve(costs: list[float], published_ns: int = START_NS) -> Signal:
    return Signal(
        zone="z", kind="carbon_intensity", published_ns=published_ns, start_ns=BEGIN_NS, step_s=SLOT_S, p50=tuple(costs)
    )


def job(needs_s: float, deadline_slots: int, **changes: Any) -> WorkloadSpec:
    given_: dict[str, Any] = {"kind": "batch", "interruptible": True, "gang_size": 2, "max_replicas": 2}
    given_["cold_start_s"] = 0.0
    deadline_ns = BEGIN_NS + deadline_slots * SLOT_NS
    return spec("job", deadline_ns=deadline_ns, duration_s=needs_s, **(given_ | changes))


def plan(costs: list[float], needs_s: float, deadline_slots: int, week: Week | None = None, **changes: Any) -> Plan:
    deferrable = schedule.Deferrable(job(needs_s, deadline_slots), needs_s, **changes)
    return schedule.make_plan(deferrable, Curve(curve(costs), week or Week()), None, "z", BEGIN_NS, CELL, SLOT_S)


def paid(made: Plan, restart_s: float = 0.0, needs_s: float = math.inf, running: bool = False) -> float:
    """Carbon of a plan as it is carried out, by another way than the planner's."""
    total, on, left = 0.0, running, needs_s
    for run, cost in zip(made.run, made.cost, strict=True):
        if run:
            left += 0.0 if on else restart_s
            total += cost * min(left, made.step_s)
            left -= min(left, made.step_s)
        on = run
    assert left <= 0 or needs_s == math.inf
    return total


costs_ = st.lists(st.integers(1, 900).map(float), min_size=SLOTS, max_size=SLOTS)


@given(costs_, st.integers(0, SLOTS + 2), st.integers(-1, SLOTS + 2))
@settings(deadline=None)
def test_no_choice_of_slots_is_cheaper(costs: list[float], need: int, deadline: int) -> None:
    made = plan(costs + [1e4] * 2, need * SLOT_S, deadline)
    chosen = [i for i, run in enumerate(made.run) if run]
    assert made.feasible == (need <= max(0, deadline))
    if not made.feasible:
        assert chosen == list(range(need))  # every slot counts: at once, and on to the end
        return
    assert len(chosen) == need
    assert set(chosen) <= set(range(max(0, deadline)))
    costs = costs + [1e4] * 2
    best = min(sum(costs[i] for i in some) for some in combinations(range(max(0, deadline)), need))
    at_once = sum(costs[:need])
    assert sum(costs[i] for i in chosen) == best
    assert made.saving == pytest.approx((at_once - best) / at_once if best < at_once else 0.0)


@given(costs_, st.integers(1, 4), st.integers(0, 2), st.booleans())
@settings(deadline=None, max_examples=60)
def test_no_plan_with_its_restarts_is_cheaper(costs: list[float], need: int, restart: int, running: bool) -> None:
    needs_s, restart_s = need * SLOT_S, restart * 2 * SLOT_S / schedule.UNITS
    made = plan(costs, needs_s, SLOTS, restart_s=restart_s, running=running)
    best = math.inf
    for run in product((False, True), repeat=SLOTS):
        some = msgspec.structs.replace(made, run=run)
        starts = sum(b and not a for a, b in zip((running, *run), run, strict=False))
        if sum(run) * SLOT_S >= needs_s + starts * restart_s:
            best = min(best, paid(some, restart_s, needs_s, running))
    if math.isfinite(best):
        assert paid(made, restart_s, needs_s, running) == pytest.approx(best, rel=1e-5)


def test_a_small_saving_is_taken_when_pausing_costs_nothing() -> None:
    made = plan([100.0, 97.0] + [200.0] * 4, SLOT_S, 6)
    assert made.run[:2] == (False, True)
    assert made.saving == pytest.approx(0.03)


def test_a_pause_that_saves_less_than_its_restart_costs_is_not_made() -> None:
    costs = [100.0, 110.0] * 3
    assert plan(costs, 3 * SLOT_S, 6, running=True).run == (True, False) * 3
    held = plan(costs, 3 * SLOT_S, 6, running=True, restart_s=SLOT_S / 2)
    assert held.run == (True, True, True, False, False, False)
    worth = plan([900.0, 900.0, 10.0, 10.0, 10.0, 10.0], 3 * SLOT_S, 6, running=True, restart_s=SLOT_S / 2)
    assert worth.run[:2] == (False, False)


def test_the_plan_reaches_to_the_deadline_however_far_it_is() -> None:
    week = 7 * 24
    costs = [400.0] * (week - 10) + [100.0] * 10
    start = START_NS // HOUR_NS * HOUR_NS
    signal = msgspec.structs.replace(curve(costs), start_ns=start, step_s=3600.0)
    workload = spec("job", kind="batch", deadline_ns=start + week * HOUR_NS, duration_s=8 * 3600.0)
    made = schedule.make_plan(
        schedule.Deferrable(workload, 8 * 3600.0), Curve(signal, Week()), None, "z", start, CELL, 900.0
    )
    assert made.feasible
    assert made.saving == pytest.approx(0.75)
    assert len(made.run) <= schedule.MOST_SLOTS
    assert not any(made.run[: round((week - 10) * 3600 / made.step_s) - 1])


def test_where_the_provider_ends_the_usual_course_of_a_day_goes_on() -> None:
    start = START_NS // (24 * HOUR_NS) * 24 * HOUR_NS
    day = [300.0] * 12 + [100.0] * 4 + [300.0] * 8
    week = Week()
    past = msgspec.structs.replace(curve(day * 7), start_ns=start - 7 * 24 * HOUR_NS, step_s=3600.0, forecast=False)
    week.note(past, start - 1)
    latest = msgspec.structs.replace(past, start_ns=start, p50=(300.0,), published_ns=start)
    workload = spec("job", kind="batch", deadline_ns=start + 24 * HOUR_NS, duration_s=4 * 3600.0)
    made = schedule.make_plan(
        schedule.Deferrable(workload, 4 * 3600.0), Curve(latest, week), None, "z", start, CELL, 3600.0
    )
    assert [i for i, run in enumerate(made.run) if run] == [12, 13, 14, 15]
    alone = schedule.make_plan(
        schedule.Deferrable(workload, 4 * 3600.0), Curve(latest, Week()), None, "z", start, CELL, 3600.0
    )
    assert [i for i, run in enumerate(alone.run) if run] == [0, 1, 2, 3]  # nobody knows: at once
    short = Week()
    short.note(msgspec.structs.replace(past, start_ns=start - 24 * HOUR_NS, p50=tuple(day)), start - 1)
    less = schedule.make_plan(
        schedule.Deferrable(workload, 4 * 3600.0), Curve(latest, short), None, "z", start, CELL, 3600.0
    )
    assert less.run == made.run  # with less history, what there is


def test_a_deviation_from_the_usual_course_fades() -> None:
    start = START_NS // (24 * HOUR_NS) * 24 * HOUR_NS
    week = Week()
    week.note(msgspec.structs.replace(curve([100.0] * 48), start_ns=start - 48 * HOUR_NS, step_s=3600.0), start - 1)
    high = msgspec.structs.replace(curve([200.0]), start_ns=start, step_s=3600.0)
    times = start + np.array([0, 1, 10, 100]) * HOUR_NS
    now, soon, later, far = course(high, week, times).tolist()
    assert now == 200.0
    assert 180.0 < soon < 200.0
    assert 120.0 < later < 160.0
    assert far == pytest.approx(100.0, rel=0.01)


def test_a_curve_with_faults_and_holes_is_continued_too() -> None:
    made = plan([500.0, math.nan, 1e30, 100.0], 2 * SLOT_S, 6)
    assert made.run[3]
    assert all(0 < cost < 1e4 for cost in made.cost)
    unknown = plan([math.nan], 2 * SLOT_S, 6)
    assert unknown.run == (True, True, False, False, False, False)
    assert unknown.saving == 0.0


def test_the_latest_start_leaves_room_for_a_restart_and_its_reserve() -> None:
    costs = [500.0, 400.0, 300.0, 200.0, 100.0, 1.0]
    late = plan(costs, SLOT_S, 6)
    assert late.run == (False,) * 5 + (True,)
    early = plan(costs, SLOT_S, 6, restart_s=SLOT_S, margin_s=SLOT_S)
    assert [i for i, run in enumerate(early.run) if run] == [3, 4]
    ready = schedule.Deferrable(job(SLOT_S, 6), SLOT_S, restart_s=SLOT_S, margin_s=SLOT_S)
    assert not ready.must_run(BEGIN_NS + 2 * SLOT_NS)
    assert ready.must_run(BEGIN_NS + 3 * SLOT_NS)


def test_progress_that_is_behind_is_seen() -> None:
    workload = job(3600.0, 600)
    fast, slow, stuck = Progress(), Progress(), Progress()
    for second in range(1200):
        for one, pace in ((fast, 1.0), (slow, 0.5), (stuck, 0.0)):
            share = 0.2 + pace * min(second, 1199) / 3600.0
            one.observe(tick(second), Demand(workload="job", replicas=2, ready=2, devices=2, progress=share))
    assert fast.remaining_s(workload) == pytest.approx((1 - 0.2 - 1199 / 3600) * 3600, rel=0.02)
    assert slow.remaining_s(workload) == pytest.approx((1 - 0.2 - 0.5 * 1199 / 3600) * 7200, rel=0.15)
    assert stuck.remaining_s(workload) > 10 * 3600.0


def test_a_job_that_reports_rarely_is_not_behind() -> None:
    workload, rare = job(3600.0, 600), Progress()
    for second in range(1190):
        share = second // 120 * 120 / 3600.0
        rare.observe(tick(second), Demand(workload="job", replicas=2, ready=2, devices=2, progress=share))
    assert rare.remaining_s(workload) == pytest.approx(3600.0 - 1080.0, rel=0.03)


def test_starts_are_measured_and_their_spread_is_the_reserve() -> None:
    workload, seen = job(3600.0, 600, checkpoint_s=30.0), Progress()
    assert (seen.restart_s(workload, 60.0), seen.margin_s(60.0)) == (90.0, 60.0)
    at = 0
    for delay in (100, 120, 300):
        seen.note_request(tick(at).end_ns)
        seen.observe(tick(at + delay), Demand(workload="job", replicas=2, ready=2, devices=2))
        at += 1000
    assert seen.starts_s == [100.0, 120.0, 300.0]
    assert (seen.restart_s(workload, 60.0), seen.margin_s(60.0)) == (150.0, 180.0)


def test_the_slot_of_a_time_and_the_next_run() -> None:
    made = plan([500.0, 100.0, 500.0, 90.0, 500.0, 500.0], 2 * SLOT_S, 6)
    starts = [made.start_ns + i * SLOT_NS for i in range(SLOTS)]
    assert [schedule.slot_of(made, t) for t in starts] == list(range(SLOTS))
    assert [schedule.slot_of(made, t - 1) for t in starts] == [0, 0, 1, 2, 3, 4]
    assert schedule.next_run(made, starts[0]) == starts[1]
    assert schedule.next_run(made, starts[2]) == starts[3]
    assert schedule.next_run(made, starts[4]) is None
    assert schedule.mean_cost(made) == pytest.approx(95.0)


class Yard:
    """A cell with one deferrable job that does as it is told."""

    def __init__(self, workload: WorkloadSpec, *signals: Signal, running: bool = True) -> None:
        sizing = msgspec.structs.replace(CONFIG.sizing, reversal_cooldown_s=10.0)
        config = msgspec.structs.replace(CONFIG, slot_s=SLOT_S, sizing=sizing)
        self.held = [Allocation(workload="job", replica=f"{i}", devices=(i,)) for i in range(2)]
        self.node = inventory("node-1", 4, self.held if running else (), zone="z")
        self.cell = Cell(self.node, records=[workload, *signals], config=config)
        self.time = 0

    def until(self, tick: int, progress: float | None = None) -> Out:
        shown = {"flyball.workload.ready": 1.0} | ({} if progress is None else {"flyball.workload.progress": progress})
        values = Values({"hw.power": 300.0}, {}, shown)
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
        self.cell.feed(incoming_records(now))
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
    assert (out.of(Plan), out.proposals()) == ([], [])


def test_a_plan_is_published_once_a_slot_and_when_the_curve_changes() -> None:
    yard = Yard(job(2 * SLOT_S, 6), curve([100.0] * 6))
    first = yard.until(int(SLOT_S - OFFSET + 6)).of(Plan)
    assert len(first) == 2
    yard.cell.feed(incoming_records(curve([90.0] * 6, published_ns=START_NS + 1)))
    assert len(yard.until(yard.time + 5).of(Plan)) == 1


def test_a_job_that_is_not_a_gang_runs_with_all_it_may_have() -> None:
    yard = Yard(job(8 * SLOT_S, 4, gang_size=1), curve([5.0] * 6), running=False)
    assert [s.replicas for s in yard.until(10).of(Scale)] == [2]


def test_what_is_done_is_not_planned_again() -> None:
    yard = Yard(job(2 * SLOT_S, 6), curve([500.0, 480.0, 100.0, 90.0, 500.0, 500.0]))
    out = yard.until(20, progress=1.0)
    assert out.proposals() == []


def test_a_job_that_is_gone_is_forgotten() -> None:
    yard = Yard(job(2 * SLOT_S, 6), curve([100.0] * 6))
    yard.until(8)
    held = yard.cell.engine.workloads[0].cells[CELL]
    assert set(held.deferral.plans) == {"job"}
    yard.cell.feed(incoming_records(job(2 * SLOT_S, 6, removed=True, time_ns=START_NS + 1)))
    yard.until(10)
    kept = held.deferral
    assert (kept.plans, kept.progress, kept.basis) == ({}, {}, {})


def deferral(directory: Directory, *rows: Record) -> Deferral:
    """The deferral of a cell with these rows, whose only node is in zone z."""
    for row in (inventory("node-1", zone="z"), *rows):
        directory.apply(row)
    return Deferral(CELL, SLOT_S, directory, Capacities(CELL, CONFIG, directory))


def stepped(
    cell: Deferral, workload: WorkloadSpec, at: int, runs: bool, missing: tuple[str, ...] = ()
) -> list[Proposal]:
    """Proposals of the tick ``at`` seconds after the beginning of the first slot."""
    now = msgspec.structs.replace(tick(at - OFFSET), missing=missing)
    demands = {"job": Demand(workload="job", replicas=2, ready=2, devices=2)} if runs else {}
    proposals = Proposals({}, now.index)
    list(cell.step(now, [workload], demands, proposals))
    return list(proposals.new.values())


@pytest.mark.parametrize("ran_s", [60, 119, 120, 130])
def test_a_job_that_is_declared_again_for_the_next_night_runs_again(ran_s: int) -> None:
    day, costs = 1440, [500.0, 480.0, 100.0, 90.0, 500.0, 500.0]
    first = job(2 * SLOT_S, 6)
    cell = deferral(directory := Directory(), first, curve(costs))
    assert [p.action for p in stepped(cell, first, 121, runs=False)] == ["scale"]
    for at in range(122, 122 + ran_s):
        assert stepped(cell, first, at, runs=True) == []
    night_ns = BEGIN_NS + day * SLOT_NS
    again = msgspec.structs.replace(curve(costs, night_ns), start_ns=night_ns)
    directory.apply(again)
    second = job(2 * SLOT_S, day + 6, time_ns=night_ns)
    begin = day * int(SLOT_S)
    assert stepped(cell, second, begin + 1, runs=False) == []
    assert cell.plans["job"].run[:4] == (False, False, True, True)
    assert [p.action for p in stepped(cell, second, begin + 121, runs=False)] == ["scale"]


def test_a_later_deadline_does_not_undo_the_progress_of_a_job() -> None:
    first = job(4 * SLOT_S, 6)
    cell = deferral(Directory(), first, curve([100.0] * 6))
    for at in range(1, 61):
        stepped(cell, first, at, runs=True)
    stepped(cell, job(4 * SLOT_S, 8, time_ns=START_NS + 1), 61, runs=False)
    assert cell.progress["job"].ran_s == 60.0


def test_a_job_on_nodes_of_a_late_lane_is_not_started_again() -> None:
    workload = job(4 * SLOT_S, 6)
    cell = deferral(Directory(), workload, curve([100.0] * 6))
    assert stepped(cell, workload, 1, runs=True) == []
    assert stepped(cell, workload, 2, runs=False, missing=("node/1",)) == []
    assert [p.action for p in stepped(cell, workload, 3, runs=False)] == ["scale"]


def test_a_start_during_which_telemetry_had_a_gap_is_not_measured() -> None:
    workload = job(2 * SLOT_S, 6000)
    cell = deferral(Directory(), workload, curve([100.0] * 6))
    assert [p.action for p in stepped(cell, workload, 1, runs=False)] == ["scale"]
    restored = deferral(Directory(), workload, curve([100.0] * 6))
    restored.load(cell.state())
    assert stepped(restored, workload, 86_400, runs=True) == []
    assert restored.progress["job"].starts_s == []
