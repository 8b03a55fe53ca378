"""The worker's learned policy is the backtest's kernel, step by step; what the worker adds: rows, silence, words."""

import math
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, cast

import msgspec
import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st
from tests.streams.engine.workload.sized import BLIND, FIRST, SIZING, Worker, minutes, requested, spec

from flyball_contracts.records import Demand, Objective, WorkloadSpec
from flyball_models.scaling import Observation, desired, fresh, number, shadow_selection
from flyball_models.scaling.rows import FLOATS, HEAD, advance
from flyball_streams.engine.packing import pack, unpack
from flyball_streams.engine.parameters import SizingParameters
from flyball_streams.engine.workload.sizing.sizer import TargetReplicas

pytestmark = pytest.mark.timeout(600)  # it compiles much

LEARNED = msgspec.structs.replace(
    SIZING, policy="shadow_selection", tolerance=0.0, max_scale_in=1.0, growth=0.0, price_rate=0.05, memory_s=3600.0
)
NOTHING = Observation(*([0.0] * len(Observation._fields)))


def both(reported: WorkloadSpec, rate: Sequence[float], sizing: SizingParameters) -> Worker:
    """Let worker and backtest size the same fleet, without the limits of the sizer; return the worker."""
    assert reported.objective is not None
    worker, objective = Worker(reported, sizing=sizing, forecast=BLIND), reported.objective
    memory, cold = sizing.memory_s / 60.0, reported.cold_start_s
    of = shadow_selection.policy(
        objective.attainment, cold, objective.delay_s, memory, shadow_selection.MARGIN, sizing.price_rate
    )
    state, kind, row = fresh(), number(of), of.row()
    row[8] = 0.0  # replicas are seen at the same time as their work
    n, backlog, coming = 12, 0.0, list[int]()
    for k, work in enumerate(rate):
        coming = [at for at in coming if at > k]
        ready = n - len(coming)
        backlog = max(0.0, backlog + 5 * (work - ready))
        want = worker.one(work, n, backlog, ready=ready)
        half = rate[max(0, k - 5) : k + 1]
        seen = NOTHING._replace(
            t_s=5.0 * (FIRST + k + 1), ready=float(ready), pending=float(len(coming)), work_5=work,
            work_30=sum(reversed(half)) / len(half), backlog=backlog,
        )  # fmt: skip
        assert max(1.0, desired(kind, state, seen, row)) == (n if want is None else want.replicas), k
        if want is not None:
            coming += [k + math.ceil(cold / 5)] * max(0, want.replicas - n)
            coming = coming[: max(0, want.replicas - ready)]
            n = want.replicas
    assert worker.sizer.columns.own[0, HEAD:].tolist() == state[: FLOATS - HEAD].tolist()
    return worker


def demand(samples: int, seed: int) -> list[float]:
    random, k = np.random.default_rng(seed), np.arange(samples)
    mean = 8.0 * (1.4 + np.sin(k / 150)) * np.where(k % 700 < 60, 3.0, 1.0)
    return [float(x) for x in random.gamma(20, mean / 20)]


def test_the_worker_does_what_the_backtest_does() -> None:
    reported = spec(cold_start_s=45.0, objective=Objective(delay_s=5.0, attainment=0.97))
    worker = both(reported, demand(760, 1), LEARNED)
    of = shadow_selection.standing(worker.sizer.columns.own[0, HEAD:])
    assert of.price != pytest.approx(shadow_selection.FIRST_PRICE / 0.03)
    assert (of.late > 0.0).any()


@settings(max_examples=8, deadline=None)
@given(
    delay_s=st.sampled_from([1.0, 5.0, 200.0]),
    cold_start_s=st.sampled_from([0.0, 95.0, 4000.0]),
    late=st.floats(1e-5, 0.5),
    eta=st.sampled_from([0.0, 2.0]),
    shape=st.floats(0.1, 50.0),
    jumps=st.lists(st.floats(0.0, 8.0), min_size=2, max_size=6),
    seed=st.integers(0, 99),
)
def test_the_worker_does_what_the_backtest_does_on_any_demand(
    delay_s: float, cold_start_s: float, late: float, eta: float, shape: float, jumps: list[float], seed: int
) -> None:
    reported = spec(cold_start_s=cold_start_s, objective=Objective(delay_s=delay_s, attainment=1.0 - late))
    random = np.random.default_rng(seed)
    rate = np.concatenate([random.gamma(shape, 6.0 * jump / shape, 300 // len(jumps)) for jump in jumps])
    both(reported, [float(x) for x in rate], msgspec.structs.replace(LEARNED, price_rate=eta))


def test_a_workload_is_sized_as_if_it_were_alone() -> None:
    names = ("a", "b", "w")
    alone = Worker(spec(cold_start_s=45.0), sizing=LEARNED, forecast=BLIND)
    three = Worker(*(spec(name, cold_start_s=45.0) for name in names), sizing=LEARNED, forecast=BLIND)
    random = np.random.default_rng(5)
    for k, work in enumerate(demand(300, 2)):
        others = [requested(name, float(random.gamma(2, 9)), 9, 9, float(k % 9)) for name in names[: 1 + k % 2]]
        if k == 200:
            three.sizer.keep({"w", "a"})
        mine = requested("w", work, 12, 12, work)
        want, wanted = alone.ticks([mine])[0], three.ticks([*others, mine])[-1]
        assert (want and (want.replicas, want.reason)) == (wanted and (wanted.replicas, wanted.reason))
    columns = three.sizer.columns
    assert columns.own[columns.rows["w"]].tolist() == alone.sizer.columns.own[0].tolist()


def test_more_workloads_than_there_was_room_for() -> None:
    names = [f"w-{i}" for i in range(70)]
    worker = Worker(*map(spec, names), sizing=LEARNED, forecast=BLIND)
    for k in range(140):
        here = names if k > 90 else names[: 1 + k // 30]
        worker.ticks([requested(name, 4.0 + k % 3, 9, 9) for name in here])
    columns = worker.sizer.columns
    first, last = (columns.own[columns.rows[name]] for name in (names[0], names[-1]))
    assert first[HEAD] == 140.0
    assert last[HEAD] == 49.0
    assert len(cast(Any, advance).nopython_signatures) == 1  # no tick waits for a compiler


def test_what_nobody_saw_is_not_fitted_and_changes_nothing() -> None:
    worker = minutes([6.0] * 10, 5, Worker(spec(), sizing=LEARNED, forecast=BLIND))
    before = worker.sizer.columns.own.copy()
    for _ in range(5):
        assert worker.one(0.5, 8, missing=("node/1",)) is None
    assert worker.sizer.columns.own[0, HEAD:].tolist() == before[0, HEAD:].tolist()
    for _ in range(12):  # of a minute ago nobody knows anything
        worker.ticks([Demand(workload="w", replicas=3, ready=3, devices=3, utilization_sum=0.0)], missing=("node/1",))
    assert math.isnan(worker.sizer.needs["w"])
    known = worker.one(6.0, 8)
    assert known is not None
    assert known.replicas < 8


def test_what_waits_and_is_not_reported_is_not_judged() -> None:
    def price(queued: float | None) -> float:
        worker = Worker(spec(), sizing=LEARNED, forecast=BLIND)
        for _ in range(120):
            reported = Demand(workload="w", replicas=8, ready=8, devices=8, work_rate=6.0, queued=queued)
            worker.ticks([reported])
        return shadow_selection.standing(worker.sizer.columns.own[0, HEAD:]).price

    assert price(None) == pytest.approx(shadow_selection.FIRST_PRICE / 0.01)
    assert price(0.0) < price(None)


def test_the_period_of_the_ticks_does_not_matter() -> None:
    rate = np.random.default_rng(2).gamma(9, 1, 12).tolist()
    found = [
        minutes(rate, period_s, Worker(spec(), sizing=LEARNED, forecast=BLIND)).sizer.columns.own[0]
        for period_s in (1, 5, 60)
    ]
    for own in found:
        assert own[HEAD] == 144.0
        assert own == pytest.approx(found[0], rel=1e-9, abs=1e-9) or own is found[-1]


def test_a_snapshot_in_the_middle_changes_nothing() -> None:
    reported, rate = spec(cold_start_s=45.0), demand(400, 3)
    one = Worker(reported, sizing=LEARNED, forecast=BLIND)
    for work in rate[:233]:
        one.one(work, 12, work)
    other = Worker(reported, sizing=LEARNED, forecast=BLIND)
    raw = pack(one.sizer.state())
    other.forecaster.load(unpack(pack(one.forecaster.state())))
    other.sizer.load(unpack(raw))
    assert pack(other.sizer.state()) == raw
    other.index = dict(one.index)
    assert [one.one(work, 12, work) for work in rate[233:]] == [other.one(work, 12, work) for work in rate[233:]]
    assert pack(other.sizer.state()) == pack(one.sizer.state())


def test_a_snapshot_of_another_policy_is_a_start() -> None:
    before = minutes([6.0] * 6, 5, Worker(spec()))
    after = Worker(spec(), sizing=LEARNED)
    after.sizer.load(unpack(pack(before.sizer.state())))
    after.forecaster.load(unpack(pack(before.forecaster.state())))
    after.index = dict(before.index)
    assert after.one(6.0, 8) is None
    assert after.sizer.columns.own[0, HEAD] > 0.0


def test_it_says_who_leads_and_who_is_next() -> None:
    reported = spec(cold_start_s=150.0, objective=Objective(delay_s=5, attainment=0.99))
    worker = Worker(reported, sizing=msgspec.structs.replace(SIZING, policy="shadow_selection"), forecast=BLIND)
    found = dict[str, TargetReplicas]()
    for k, work in enumerate(demand(1500, 8)):
        want = worker.one(work, 8, queued=200.0 if k % 600 < 10 else 0.0)
        if want is not None:
            found["present" if "now, or did" in want.reason else "start" if "known for" in want.reason else "led"] = (
                want
            )
    assert found.keys() == {"present", "start", "led"}
    for want in found.values():
        assert "of 17 policies tried in the shadow since 1970-01-01 16:40 UTC" in want.reason
        assert "forecast" not in want.reason
        assert "HPA at 80% would have" in want.reason or want is found["start"]
        numbers = {e.name: e.value for e in want.evidence}
        assert numbers["shadow.policies"] == 17.0
        assert {"shadow.since", "shadow.late", "shadow.price"} <= numbers.keys()
        (leader,) = (name.removeprefix("shadow.leader.") for name in numbers if name.startswith("shadow.leader."))
        (after,) = (name.removeprefix("shadow.dearer.") for name in numbers if name.startswith("shadow.dearer."))
        assert f"{leader} leads" in want.reason
        assert f"; {after} " in want.reason
        assert not any(name.startswith("forecast") for name in numbers)
    assert " provides for " in found["led"].reason


def test_a_worker_with_another_policy_and_no_history_loads_neither_numba_nor_statsmodels() -> None:
    code = (
        "import sys; from flyball_streams.engine import Directory; "
        "from flyball_streams.engine.parameters import Parameters; "
        "from flyball_streams.engine.workload.cell import WorkloadCell; import flyball_streams.worker.run; "
        "WorkloadCell('c', 'workload/0', Parameters(), Directory()); "
        "sys.exit('numba' in sys.modules or 'statsmodels' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@example(bytes.fromhex("000000000000f87f"), 49)  # a count that a loop ran to
@given(st.binary(max_size=200), st.integers(0, (FLOATS - 30) * 8))
@settings(max_examples=10, deadline=None)
def test_a_damaged_memory_ends_in_an_error_or_a_number(damage: bytes, place: int) -> None:
    worker = minutes([6.0] * 6, 5, Worker(spec(), sizing=LEARNED, forecast=BLIND))
    state = unpack(pack(worker.sizer.state()))
    raw = state["columns"]["own"]["w"].view(np.uint8)
    raw[place : place + len(damage)] = np.frombuffer(damage, np.uint8)
    after = Worker(spec(), sizing=LEARNED, forecast=BLIND)
    after.index = dict(worker.index)
    after.forecaster.step({"w": 6.0})
    try:
        after.sizer.load(state)
        for _ in range(24):
            after.one(6.0, 8, 30.0)
    except (ValueError, OverflowError, OSError, ZeroDivisionError):  # OSError: a time that no calendar has
        return
