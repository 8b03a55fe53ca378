"""From a forecast to replicas: the lead-time band, with a reactive floor and a reason."""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flyball_contracts.config import ForecastConfig, SizingConfig
from flyball_contracts.records import Demand, Evidence, WorkloadSpec
from flyball_models import bucket
from flyball_models.sizing.replicas import UNKNOWN, band, required
from flyball_streams.engine.workload.forecaster import View

DRAIN_S = 60.0
NAMED_EXPERTS = 3
"""The forecast has the weights of all experts; a wish names so many, the largest."""


class Want(NamedTuple):
    """Replicas wanted for one workload, why, and the numbers."""

    replicas: int
    reason: str
    confidence: float
    evidence: tuple[Evidence, ...]


class Job(NamedTuple):
    """One workload to size: its specification, this tick's demand and its forecast."""

    spec: WorkloadSpec
    demand: Demand
    view: View
    forecast_id: str


def capacity_of(spec: WorkloadSpec, demand: Demand) -> float:
    """Work per second that one replica sustains, in the unit of :func:`observed_work`."""
    if demand.work_rate is not None and spec.capacity_per_replica > 0:
        return spec.capacity_per_replica
    return max(spec.gpus_per_replica, 1e-9)


def observed_work(spec: WorkloadSpec, demand: Demand, in_work: bool) -> float | None:
    """Demand of a tick: work per second, or busy GPUs where the work or its capacity is not known.

    ``in_work`` says that the series is in work per second already: a tick without it is a gap then, not GPUs.
    """
    if demand.work_rate is not None and spec.capacity_per_replica > 0:
        return demand.work_rate
    return None if in_work else demand.utilization_sum


def size(jobs: list[Job], period_s: float, forecast: ForecastConfig, sizing: SizingConfig) -> list[Want | None]:
    """Replicas for each job, ``None`` where what runs may stay.

    The upper need is the quantile ``level`` between the lead time and the hold after it, the lower one
    ``down_level`` from now on; between them the number stays, so hysteresis follows from the lead time. A forecast
    that is not trusted sizes nothing: then the backlog and the present demand alone ask for more, and nobody less.
    """
    if not jobs:
        return []
    up_level, down_level = _nearest(forecast.levels, sizing.level), _nearest(forecast.levels, sizing.down_level)
    n = bucket(len(jobs))
    now = _padded([_with_backlog(job) for job in jobs], n, np.float32)
    ahead, lower = now.copy(), np.full(n, np.nan, np.float32)
    for i, job in enumerate(jobs):
        if job.view.trusted:
            lead = _lead(job.spec, period_s, forecast.horizon_ticks)
            last = min(lead + math.ceil(sizing.hold_s / period_s), forecast.horizon_ticks)
            ahead[i] = max(now[i], job.view.quantiles[lead - 1 : last, up_level].max())
            lower[i] = max(now[i], job.view.quantiles[:last, down_level].max())
    capacity = _padded([capacity_of(j.spec, j.demand) for j in jobs], n, np.float32)
    target = _padded([j.spec.target_utilization for j in jobs], n, np.float32)
    least = _padded([j.spec.min_replicas for j in jobs], n, np.int32)
    most = _padded([j.spec.max_replicas for j in jobs], n, np.int32)
    current = _padded([j.demand.replicas for j in jobs], n, np.int32)
    up = required(ahead, capacity, target, least, most)
    down = required(lower, capacity, target, least, most)
    found = np.asarray(band(current, up, down))[: len(jobs)].tolist()
    wanted = [_step(replicas, job, sizing) for job, replicas in zip(jobs, found, strict=True)]
    return [
        None
        if replicas == job.demand.replicas
        else _want(job, replicas, found[i], float(ahead[i]), float(lower[i]), period_s, forecast, sizing)
        for i, (job, replicas) in enumerate(zip(jobs, wanted, strict=True))
    ]


def _want(
    job: Job,
    replicas: int,
    needed: int,
    ahead: float,
    lower: float,
    period_s: float,
    forecast: ForecastConfig,
    sizing: SizingConfig,
) -> Want:
    spec, demand, view = job.spec, job.demand, job.view
    more = replicas > demand.replicas
    need = ahead if more or not math.isfinite(lower) else lower
    capacity, lead_s = capacity_of(spec, demand), _lead(spec, period_s, forecast.horizon_ticks) * period_s
    level = sizing.level if more else sizing.down_level
    if view.trusted:
        basis = f"demand reaches {_plain(need)} work/s at its {level:.0%} quantile from {lead_s:.0f} s ahead on"
    else:
        basis = f"demand with its backlog is {_plain(need)} work/s now (the forecast is not trusted yet)"
    reason = (
        f"{basis}; at {spec.target_utilization:.0%} of {_plain(capacity)} work/s each that takes {needed} "
        f"replicas, {demand.replicas} run"
    )
    if needed < replicas:
        reason += f"; {replicas} for now, at most {sizing.most_in:.0%} are taken away at once"
    evidence = [
        Evidence(name="demand", value=view.observed, unit="{work}/s"),
        Evidence(name="demand.needed", value=need, unit="{work}/s", record=job.forecast_id),
        Evidence(name="capacity_per_replica", value=capacity, unit="{work}/s"),
        Evidence(name="lead_time", value=lead_s, unit="s"),
    ]
    if view.trusted:
        evidence.append(Evidence(name="forecast.level", value=level, record=job.forecast_id))
        largest = sorted(view.weights.items(), key=lambda item: (-item[1], item[0]))[:NAMED_EXPERTS]
        evidence += [Evidence(name=f"forecast.weight.{k}", value=v, record=job.forecast_id) for k, v in largest]
    if demand.queued:
        evidence.append(Evidence(name="queued", value=demand.queued, unit="{request}"))
    miss = float(np.abs(view.coverage - np.array(forecast.levels, np.float32)).max()) if view.trusted else 0.5
    return Want(replicas, reason, max(0.0, min(1.0, 1.0 - miss)), tuple(evidence))


def _step(replicas: int, job: Job, sizing: SizingConfig) -> int:
    """Wanted replicas, or the present ones where the change is too small, or fewer taken away at once."""
    current = job.demand.replicas
    if replicas == UNKNOWN or (abs(replicas - current) <= sizing.tolerance * current and not job.demand.queued):
        return current
    return max(replicas, current - max(1, int(sizing.most_in * current)))


def _with_backlog(job: Job) -> float:
    """Demand now, plus what it takes to drain the queue within a minute (or the cold start, if longer)."""
    demand = job.demand
    if not demand.queued or not demand.request_rate or demand.work_rate is None:
        return job.view.observed
    work_per_request = demand.work_rate / demand.request_rate
    return job.view.observed + demand.queued * work_per_request / max(DRAIN_S, job.spec.cold_start_s)


def _lead(spec: WorkloadSpec, period_s: float, horizon_ticks: int) -> int:
    return max(1, min(math.ceil(spec.cold_start_s / period_s), horizon_ticks))


def _nearest(levels: tuple[float, ...], level: float) -> int:
    return min(range(len(levels)), key=lambda i: abs(levels[i] - level))


def _padded(values: list[float] | list[int], n: int, kind: type[np.generic]) -> NDArray[Any]:
    """Values in an array of the padded length, so that few shapes are compiled; zeros ask for nothing.

    What anybody may write in a specification is cut to what the array's type can hold.
    """
    most = 1e30 if kind is np.float32 else 2**31 - 1
    array = np.zeros(n, kind)
    array[: len(values)] = [min(max(value, -most), most) for value in values]
    return array


def _plain(value: float) -> str:
    """Three significant digits, never an exponent: ``19,700`` or ``0.0123``."""
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.0f}" if abs(rounded) >= 100 else f"{rounded:g}"
