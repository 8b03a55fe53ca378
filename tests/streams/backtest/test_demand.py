"""Demand: what each minute needs, arrivals of clients, the clairvoyant cover, and bounds that know no future."""

import math
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from bench.scaling.servegen import Clients, arrivals, read_clients
from bench.scaling.traces import open_traces

from flyball_contracts.errors import RecordingError
from flyball_contracts.records import Demand as DemandRecord, Tick, WorkloadSpec
from flyball_models.scaling import Observation, band, desired, fresh, number
from flyball_streams.backtest.demands.demand import Demand, requirement, trailing_mean
from flyball_streams.backtest.kernel import Bounds
from flyball_streams.backtest.policies import bounds
from flyball_streams.backtest.policies.cover import cover
from flyball_streams.engine.parameters import ForecastParameters, SizingParameters
from flyball_streams.engine.workload.forecast.forecaster import Forecaster
from flyball_streams.engine.workload.sizing.sizer import Job, Sizer

pytestmark = pytest.mark.timeout(600)  # it compiles much

TICKS = 240
"""An hour; the forecasts of another length, or with other settings, are compiled anew."""


def demand_of(seconds: int, seed: int = 0) -> Demand:
    rng = np.random.default_rng(seed)
    work = rng.gamma(2, 5, seconds) * (1.2 + np.sin(np.arange(seconds) / 900))
    return Demand("x", work, rng.integers(0, 9, seconds).astype(float))


def test_trailing_mean_starts_from_idle() -> None:
    assert trailing_mean(np.array([4.0, 2.0, 6.0]), 2).tolist() == [2.0, 3.0, 4.0]


def test_requirement_serves_the_share_of_requests_that_it_names() -> None:
    demand = demand_of(1200)
    need, mean = requirement(demand, 5), trailing_mean(demand.work, 5)
    assert len(need) == 20
    for k, y in enumerate(need):
        part = slice(60 * k, 60 * k + 60)
        weight = demand.requests[part]
        assert weight[mean[part] <= y + 1e-9].sum() >= 0.9 * weight.sum() - 1e-6
        assert weight[mean[part] < y - 1e-9].sum() < 0.9 * weight.sum() + 1e-6


def test_arrivals_have_the_rate_and_burstiness_that_was_requested_and_repeat() -> None:
    fleet = Clients("f", (3, 8), np.full((2, 36), 5.0), np.array([[1.0] * 36, [3.0] * 36]), "")
    demand = arrivals(fleet, np.array([0.5]), 1, mean_rps=20.0)
    assert demand.requests.mean() == pytest.approx(20.0, rel=0.05)
    assert demand.work.mean() == pytest.approx(20.0)
    again = arrivals(fleet, np.array([0.5]), 1, mean_rps=20.0)
    assert (again.requests == demand.requests).all()
    calm, bursty = (
        arrivals(Clients("f", (i,), fleet.rate[i : i + 1], fleet.cv[i : i + 1], ""), np.ones(1), 2, 20.0).requests
        for i in (0, 1)
    )
    assert bursty.var() > 3 * calm.var()


def test_gaps_of_the_trace_are_interpolated_and_a_workload_is_one_trace(tmp_path: Path) -> None:
    windows = 2 * 7 * 144
    rows = [
        (m, c, 600 * t, 0.0 if t in (5, 6) else 1.0 + c) for m in ("one",) for c in range(4) for t in range(windows)
    ]
    frame = pl.DataFrame(rows, schema=["model", "client", "t_s", "rate_rps"], orient="row").with_columns(cv=1.0)
    frame.write_parquet(tmp_path / "rates.parquet")
    (fleet,) = read_clients(tmp_path)
    assert fleet.rate[:, 5].tolist() == pytest.approx([1.0, 2.0, 3.0, 4.0])
    assert "2 windows" in fleet.about
    assert open_traces(tmp_path).names == ["one"]


def test_a_folder_without_traces_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="servegen"):
        open_traces(tmp_path)


def test_cover_bridges_short_breaks_and_pays_for_long_ones() -> None:
    work = np.zeros(600)
    work[100:200] = work[230:330] = work[500:600] = 3.0
    billed = cover(Demand("x", work, work), 1, 50, drain_s=30, least=1)
    always, layers = 600 + 50, 2  # layer 1 is never off
    assert billed.sum() == always + layers * (300 + 50 + 30 + 80)


def scheduled(demand: Demand) -> Bounds:
    return bounds.schedule(requirement(demand, 5), 300.0)


def forecast(demand: Demand) -> Bounds:
    return bounds.Engine([demand], (300.0,)).bounds(0, 300.0, 4)


def test_bounds_do_not_know_what_comes() -> None:
    demand = demand_of(4 * 3600)
    changed = demand._replace(work=demand.work.copy())
    changed.work[2 * 3600 :] *= 3
    part = slice(2 * 3600 - TICKS // 2 * bounds.TICK_S, 2 * 3600 + TICKS // 2 * bounds.TICK_S)
    for make, shown in ((scheduled, slice(None)), (forecast, part)):
        first, second = (make(d._replace(work=d.work[shown], requests=d.requests[shown])) for d in (demand, changed))
        same = len(demand.work[shown]) // 2 // first.step_s + 1
        assert np.array_equal(first.upper[:same], second.upper[:same], equal_nan=True)
        assert not np.array_equal(first.upper, second.upper, equal_nan=True)
    seen = [bounds.oracle(requirement(d, 5), 300.0, 2) for d in (demand, changed)]
    assert not np.array_equal(seen[0].upper[:120], seen[1].upper[:120], equal_nan=True)


def test_the_engine_policy_asks_for_what_the_sizer_asks_for() -> None:
    config, sizing = (
        ForecastParameters(levels=(0.05, 0.25, *bounds.LEVELS)),
        SizingParameters(policy="forecast_band", level=0.9, growth=0.0),
    )
    forecaster = Forecaster(config)
    sizer = Sizer(config, sizing, forecaster)
    demand = demand_of(TICKS * bounds.TICK_S)
    reported = bounds.Engine([demand], (300.0,), config, sizing).bounds(0, 300.0, bounds.LEVELS.index(0.9))
    policy = band.engine(0.8, sizing.tolerance, sizing.max_scale_in, 0.0, 300.0, "")
    spec = WorkloadSpec(
        workload="w", cell="c", time_ns=0, kind="inference", min_replicas=0, max_replicas=10_000,
        capacity_per_replica=1.0, cold_start_s=300.0,
    )  # fmt: skip
    compared = 0
    for k in range(TICKS - 1):
        work = float(demand.work[k * bounds.TICK_S : (k + 1) * bounds.TICK_S].mean())
        view = forecaster.step({"w": work})["w"]
        replicas = 5 + k % 40
        record = DemandRecord(
            workload="w", replicas=replicas, ready=replicas, devices=replicas, work_rate=work, request_rate=1.0,
            queued=0.0,
        )  # fmt: skip
        tick = Tick(index=k, period_ns=bounds.TICK_S * 10**9)
        (want,) = sizer.step(tick, [Job(spec, record, view, "f", 1.0, "owner", 300.0)])
        seen = Observation(*([0.0] * len(Observation._fields)))._replace(
            t_s=1e6,
            ready=float(replicas),
            upper=reported.upper[k + 1],
            lower=reported.lower[k + 1],
            present=reported.present[k + 1],
        )
        proposal = desired(number(policy), fresh(), seen, policy.row())
        assert view.trusted == (not math.isnan(reported.upper[k + 1]))
        assert proposal == pytest.approx(replicas if want is None else want.replicas, abs=1)
        compared += proposal == (replicas if want is None else want.replicas)
    assert compared >= 0.97 * (TICKS - 1)  # float32 there, float64 here
