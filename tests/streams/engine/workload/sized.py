"""A sizer with its forecaster, driven tick by tick: what tests of its policies share."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from tests.streams.engine.scene import FORECAST

from flyball_contracts.records import Demand, Tick, WorkloadSpec
from flyball_streams.engine.parameters import ForecastParameters, SizingParameters
from flyball_streams.engine.workload.forecast.forecaster import Forecaster, View
from flyball_streams.engine.workload.sizing.sizer import IN_GPUS, Job, Sizer, TargetReplicas

S = 1_000_000_000
SIZING = SizingParameters()
BLIND = msgspec.structs.replace(FORECAST, trust_after_ticks=10**6)
FIRST = 12_000
"""A sample that begins a minute, so that times look like times."""


def spec(name: str = "w", **changes: Any) -> WorkloadSpec:
    given: dict[str, Any] = {"min_replicas": 1, "max_replicas": 100_000, "capacity_per_replica": 1.0}
    return WorkloadSpec(workload=name, cell="c", time_ns=0, kind="inference", **(given | changes))


class Worker:
    """A sizer with its forecaster, as a cell of the workload lane drives them."""

    def __init__(
        self, *specs: WorkloadSpec, sizing: SizingParameters = SIZING, forecast: ForecastParameters = FORECAST
    ) -> None:
        self.specs = {s.workload: s for s in specs}
        self.forecaster = Forecaster(forecast)
        self.sizer = Sizer(forecast, sizing, self.forecaster)
        self.index: dict[int, int] = {}
        self.views: Mapping[str, View] = {}

    def ticks(
        self, demands: Sequence[Demand], period_s: int = 5, missing: tuple[str, ...] = ()
    ) -> list[TargetReplicas | None]:
        """One tick after the last one."""
        views = self.views = self.forecaster.step({d.workload: _work(d) for d in demands})
        index = self.index.setdefault(period_s, FIRST * 5 // period_s)
        self.index[period_s] += 1
        jobs = [
            Job(spec, d, views[d.workload], "f", *_sustained(spec), spec.cold_start_s)
            for d in demands
            for spec in (self.specs[d.workload],)
        ]
        return self.sizer.step(Tick(index=index, period_ns=period_s * S, missing=missing), jobs)

    @property
    def trusted(self) -> bool:
        """Whether a forecast of the last tick is trusted; forecasts are made once they are read."""
        return any(view.trusted for view in self.views.values())

    def one(self, work: float | None, n: int, queued: float = 0.0, **how: Any) -> TargetReplicas | None:
        """One tick of the only workload, in which a request is a unit of work."""
        demand = requested("w", work, n, how.pop("ready", n), queued)
        return self.ticks([demand], **how)[0]


def _sustained(spec: WorkloadSpec) -> tuple[float, str]:
    each = spec.capacity_per_replica
    return (each, "owner") if each > 0 else (spec.gpus_per_replica, IN_GPUS)


def _work(demand: Demand) -> float:
    work = demand.work_rate if demand.work_rate is not None else demand.utilization_sum
    assert work is not None
    return work


def requested(name: str, work: float | None, n: int, ready: int, queued: float = 0.0, **more: Any) -> Demand:
    return Demand(
        workload=name, replicas=n, ready=ready, devices=n, work_rate=work, request_rate=work, queued=queued, **more
    )


def minutes(rate: Sequence[float], period_s: int, worker: Worker) -> Worker:
    for mean in rate:
        for _ in range(60 // period_s):
            worker.one(mean, 8, period_s=period_s)
    return worker
