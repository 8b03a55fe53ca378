"""The worker's objective policy is the backtest's, in columns; and what the worker adds: time, silence, zero, words."""

import math
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from tests.streams.engine.scene import FORECAST
from tests.streams.engine.workload.sized import BLIND, SIZING, Worker, minutes, requested, spec

from flyball_contracts.records import Demand, Objective, WorkloadSpec
from flyball_models.scaling import (
    Observation,
    Policy,
    desired,
    fresh,
    headroom,
    hpa as rival,
    lead_time_headroom,
    number,
)
from flyball_models.scaling.headroom import Limits
from flyball_models.sizing import hpa
from flyball_streams.engine.packing import pack, unpack
from flyball_streams.engine.parameters import ForecastParameters, SizingParameters
from flyball_streams.engine.workload.sizing.sizer import TargetReplicas

pytestmark = pytest.mark.timeout(600)  # it compiles much

LIMITS = Limits(SIZING.tolerance, SIZING.max_scale_in, SIZING.growth)
HOLD = {"slo_headroom": 3, "lead_time_headroom": 2}
"""Place of the hold among the knobs."""
NOTHING = Observation(*([0.0] * len(Observation._fields)))


def both(
    policy: Policy,
    reported: WorkloadSpec,
    rate: Sequence[float],
    sizing: SizingParameters,
    forecast: ForecastParameters,
) -> int:
    """Let worker and backtest size the same fleet; how often a forecast raised it."""
    worker = Worker(reported, sizing=sizing, forecast=forecast)
    state, knobs, kind = fresh(), policy.row(), number(policy)
    lead = min(math.ceil(reported.cold_start_s / 5), forecast.horizon_ticks)
    last = min(lead + math.ceil(sizing.reversal_cooldown_s / 5), forecast.horizon_ticks)
    n, backlog, coming, raised = 12, 0.0, list[int](), 0
    for k, work in enumerate(rate):
        coming = [at for at in coming if at > k]
        ready = n - len(coming)
        backlog = max(0.0, backlog + 5 * (work - ready))
        want = worker.one(work, n, backlog, ready=ready)
        row = np.array([worker.forecaster.slots["w"]])
        ahead = float(worker.forecaster.most(row, 2, np.array([lead]), np.array([last]))[0])
        raised += want is not None and "the forecast's 50%" in want.reason
        half = rate[max(0, k - 5) : k + 1]
        seen = NOTHING._replace(
            t_s=5.0 * k, ready=float(ready), pending=float(len(coming)), work_5=work,
            work_30=sum(reversed(half)) / len(half), backlog=backlog, upper=ahead if worker.trusted else np.nan,
        )  # fmt: skip
        proposal = desired(kind, state, seen, knobs)
        assert max(1.0, proposal) == (n if want is None else want.replicas), k
        if want is not None:
            coming += [k + lead] * max(0, want.replicas - n)
            coming = coming[: max(0, want.replicas - ready)]
            n = want.replicas
    return raised


def policy_of(name: str, objective: float, rate: float, reported: WorkloadSpec, delay_s: float) -> Policy:
    if name == "lead_time_headroom":
        return lead_time_headroom.policy(objective, rate, 5, 10, reported.cold_start_s, delay_s, LIMITS)
    return headroom.tracking(objective, rate, 5, 10, reported.cold_start_s, delay_s, LIMITS)


@pytest.mark.parametrize("name", ["slo_headroom", "lead_time_headroom"])
@pytest.mark.parametrize(("delay_s", "objective", "trusting"), [(5.0, 0.99, True), (30.0, 0.95, False)])
def test_the_worker_does_what_the_backtest_does(name: Any, delay_s: float, objective: float, trusting: bool) -> None:
    reported = spec(cold_start_s=15.0, objective=Objective(delay_s=delay_s, attainment=objective))
    sizing = msgspec.structs.replace(SIZING, policy=name, headroom_rate=0.5)
    random, rate = np.random.default_rng(3), list[float]()
    for k in range(300):
        mean = 8.0 * (1.4 + math.sin(k / 45)) * (3.0 if 180 < k < 210 else 1.0)
        rate.append(float(random.gamma(20, mean / 20)))
    policy = policy_of(name, objective, 0.5, reported, delay_s)
    raised = both(policy, reported, rate, sizing, FORECAST if trusting else BLIND)
    assert (raised > 0) == (trusting and name == "slo_headroom")  # what lead keeps of present work is more already


@settings(max_examples=8)
@given(
    name=st.sampled_from(["slo_headroom", "lead_time_headroom"]),
    delay_s=st.sampled_from([1.0, 5.0, 30.0, 200.0]),
    cold_start_s=st.sampled_from([0.0, 10.0, 95.0, 600.0, 4000.0]),
    late=st.floats(1e-5, 0.5),
    eta=st.sampled_from([0.0, 0.02, 2.0]),
    keep_s=st.sampled_from([60.0, 600.0]),
    shape=st.floats(0.1, 50.0),
    jumps=st.lists(st.floats(0.0, 8.0), min_size=2, max_size=6),
    seed=st.integers(0, 99),
)
def test_the_worker_does_what_the_backtest_does_on_any_demand(
    name: Any, delay_s: float, cold_start_s: float, late: float, eta: float, keep_s: float, shape: float,
    jumps: list[float], seed: int,
) -> None:  # fmt: skip
    reported = spec(cold_start_s=cold_start_s, objective=Objective(delay_s=delay_s, attainment=1.0 - late))
    sizing = msgspec.structs.replace(SIZING, policy=name, headroom_rate=eta, stabilization_window_s=keep_s)
    random = np.random.default_rng(seed)
    rate = np.concatenate([random.gamma(shape, 6.0 * jump / shape, 300 // len(jumps)) for jump in jumps])
    policy = policy_of(name, reported.objective.attainment if reported.objective else 1.0, eta, reported, delay_s)
    policy = policy._replace(knobs=tuple(keep_s / 60 if i == HOLD[name] else x for i, x in enumerate(policy.knobs)))
    both(policy, reported, [float(x) for x in rate], sizing, FORECAST)


def test_hpa_in_columns_is_hpa() -> None:
    random = np.random.default_rng(1)
    columns, states, n = hpa.init(3), [fresh() for _ in range(3)], np.array([4.0, 9.0, 1.0])
    target = np.array([0.5, 0.8, 0.7])
    for k in range(120):
        work = random.gamma(4, 2 + 2 * np.sin(k / 9), 3)
        known = random.random(3) > 0.1
        hpa.step(columns, np.where(known, work, np.nan), target, n, np.ones(3), np.full(3, 1e4))
        before = n.copy()
        for i in np.flatnonzero(known):
            n[i] = max(1.0, rival.recommend(states[i], min(work[i], n[i]), n[i], target[i], 0.0))
        assert columns.replicas[known].tolist() == n[known].tolist()
        assert before[~known].tolist() == n[~known].tolist()


def test_the_period_of_the_ticks_does_not_matter() -> None:
    rate = np.random.default_rng(2).gamma(9, 1, 12).tolist()
    found = [minutes(rate, period_s, Worker(spec())).sizer.columns for period_s in (1, 2, 5, 10, 60)]
    for columns in found:
        assert columns.need.minutes[0] == 12
        assert columns.need.target[0] == pytest.approx(found[0].need.target[0], rel=1e-12)
        assert columns.rival.replicas[0] == found[0].rival.replicas[0]


@pytest.mark.parametrize("each", [0.25, 64.0])
def test_the_unit_of_work_does_not_matter(each: float) -> None:
    plain, scaled = Worker(spec(), forecast=BLIND), Worker(spec(capacity_per_replica=each), forecast=BLIND)
    for x in np.random.default_rng(6).gamma(4, 2, 150).tolist():
        a, b = plain.one(x, 10, x), scaled.one(x * each, 10, x * each)
        assert (a and a.replicas) == (b and b.replicas)


def test_nobody_loses_a_replica_before_enough_is_known() -> None:
    worker = Worker(spec())
    found = [worker.one(2.0, 10) for _ in range(60)]
    assert found[:59] == [None] * 59
    assert found[59] is not None
    assert found[59].replicas == 8  # a quarter at once


def test_an_unknown_tick_is_a_gap_and_an_hour_of_them_a_new_workload() -> None:
    worker = minutes([2.0] * 6, 5, Worker(spec()))
    worker.ticks([])
    assert worker.one(2.0, 10) is not None
    worker.index[5] += 730
    assert worker.one(2.0, 10) is None


def test_a_sum_that_lacks_a_source_takes_nothing_away() -> None:
    worker = minutes([6.0] * 6, 5, Worker(spec()))
    known = worker.sizer.columns.need.target.copy()
    for _ in range(130):
        assert worker.one(0.5, 8, missing=("node/1",)) is None
    assert worker.sizer.columns.need.target[0] == known[0]
    more = worker.one(20.0, 8, 1000.0, missing=("node/1",))
    assert more is not None
    assert more.replicas > 8


def test_what_is_on_its_way_is_not_requested_for_again() -> None:
    worker = minutes([4.0] * 6, 5, Worker(spec()))
    first = [worker.one(40.0, 6, queued=100.0 * k) for k in range(1, 7)][-1]
    assert first is not None
    assert first.replicas == 24  # four times what is ready
    held = [worker.one(40.0, 24, queued=100.0 * k, ready=6) for k in range(7, 20)]
    assert held == [None] * 13


def test_busy_gpus_are_kept_below_their_target() -> None:
    worker = Worker(spec(capacity_per_replica=0.0, gpus_per_replica=2.0))
    full = Demand(workload="w", replicas=4, ready=4, devices=8, utilization_sum=8.0)
    found = [worker.ticks([full])[0] for _ in range(80)]
    assert all(want is not None and want.replicas == 5 for want in found[:50])  # 4 / 0.8
    assert found[-1] is not None
    assert found[-1].replicas >= 5
    assert "busy GPUs" in found[-1].reason


@pytest.mark.parametrize("policy", ["slo_headroom", "lead_time_headroom", "forecast_band", "shadow_selection"])
def test_the_idle_are_scaled_to_zero_and_back_at_the_first_sign(policy: Any) -> None:
    sizing = msgspec.structs.replace(SIZING, policy=policy, scale_to_zero_after_s=300.0)
    worker = Worker(spec(min_replicas=0, max_replicas=20), sizing=sizing)
    never = Worker(
        spec(min_replicas=0, max_replicas=20), sizing=msgspec.structs.replace(sizing, scale_to_zero_after_s=0.0)
    )
    last: TargetReplicas | None = None
    for _ in range(120):
        last, kept = worker.one(0.0, 1), never.one(0.0, 1)
        assert kept is None or kept.replicas >= 1
    assert last is not None
    assert last.replicas == 0
    assert "nothing was asked for" in last.reason
    assert worker.one(0.0, 0) is None
    woken = worker.one(0.0, 0, queued=1.0)
    assert woken is not None
    assert 1 <= woken.replicas <= 4


def test_a_lost_forecast_has_no_say_and_that_is_published() -> None:
    for forecast, trusted in ((FORECAST, 1.0), (BLIND, 0.0)):
        worker = Worker(spec(objective=Objective(delay_s=5, attainment=0.999)), forecast=forecast)
        want = minutes([5.0, 6.0, 5.0, 7.0, 5.0, 6.0, 8.0], 5, worker).one(30.0, 8)
        assert want is not None
        numbers = {e.name: e.value for e in want.evidence}
        assert numbers["forecast.trusted"] == trusted
        assert ("forecast.ahead" in numbers) == bool(trusted)
        assert numbers["objective.attainment"] == pytest.approx(0.999)
        assert numbers["hpa.replicas"] == 10
        assert want.reason.endswith("HPA at 80% would have 10")


def test_lead_says_what_its_headroom_is_made_of() -> None:
    worker = Worker(
        spec(cold_start_s=150.0, objective=Objective(delay_s=5, attainment=0.99)),
        sizing=msgspec.structs.replace(SIZING, policy="lead_time_headroom"),
        forecast=BLIND,
    )
    random, found = np.random.default_rng(8), dict[str, TargetReplicas]()
    for k in range(1200):
        work = float(random.gamma(9, 0.5 if k % 360 < 240 else 1.0))
        want = worker.one(work, 8, queued=200.0 if k == 1100 else 0.0)
        if want is not None:
            found["present" if "to be gone in 90 s" in want.reason else "headroom"] = want
    headroom, present = found["headroom"], found["present"]
    numbers = {e.name: e.value for e in headroom.evidence}
    assert numbers["headroom.lead_time"] == 180.0
    assert numbers["objective.attainment"] == pytest.approx(0.99)
    state = worker.sizer.columns.need
    provided = numbers["headroom.level"] + numbers["headroom.z"] * numbers["headroom.spread"]
    assert math.ceil(max(provided, state.target[0])) >= headroom.replicas
    assert numbers["headroom.error"] > 0.0
    assert "3 min later it is off by" in headroom.reason
    assert "spreads are added" in headroom.reason
    assert "or did in the last 120 s" in present.reason


@pytest.mark.parametrize("policy", ["slo_headroom", "lead_time_headroom", "shadow_selection"])
def test_a_sizer_goes_on_from_its_snapshot(policy: Any) -> None:
    random = np.random.default_rng(4)
    names = [f"w-{i}" for i in range(5)]
    specs = [spec(name, cold_start_s=45.0 * i) for i, name in enumerate(names)]
    sizing = msgspec.structs.replace(SIZING, policy=policy)
    one, other = Worker(*specs, sizing=sizing), Worker(*specs, sizing=sizing)
    for k in range(200):
        asks = [
            requested(name, float(random.gamma(4, 2)), 9, 8, float(k % 7 == 0))
            for name in names
            if random.random() > 0.3
        ]
        if k in (77, 150):
            other = Worker(*specs, sizing=sizing)
            other.forecaster.load(unpack(pack(one.forecaster.state())))
            other.sizer.load(unpack(pack(one.sizer.state())))
            other.index = dict(one.index)
        found = one.ticks(asks, period_s=2)
        if k >= 77:
            assert other.ticks(asks, period_s=2) == found
    assert pack(one.sizer.state()) == pack(other.sizer.state())


def test_who_is_gone_leaves_its_row_to_a_new_one() -> None:
    worker = minutes([6.0] * 6, 5, Worker(spec(), spec("new")))
    worker.sizer.keep({"new"})
    assert worker.ticks([requested("new", 1.0, 5, 5)]) == [None]
    assert worker.sizer.columns.rows == {"new": 0}
    assert worker.sizer.columns.need.minutes[0] == 0
