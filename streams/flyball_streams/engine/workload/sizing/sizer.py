"""From demand to replicas, by the configured policy, with a reason for each change."""

import math
from typing import Any, NamedTuple

import msgspec
import numpy as np

from flyball_contracts.ids import NS_PER_S, record_id
from flyball_contracts.records import Demand, Evidence, Tick, WorkloadSpec
from flyball_models.sizing.lead_time_headroom import minutes
from flyball_models.sizing.limits import bounded
from flyball_streams.engine.packing import pack_struct, unpack_struct
from flyball_streams.engine.parameters import ForecastParameters, SizingParameters
from flyball_streams.engine.workload.forecast.forecaster import MOST_KEPT, Forecaster, View
from flyball_streams.engine.workload.proposals import REPEAT_IN_FULL_TICKS
from flyball_streams.engine.workload.sizing import forecast_band, lead_time_headroom, slo_headroom
from flyball_streams.engine.workload.sizing.columns import Columns, Floats, Ints, Observed, ends_sample
from flyball_streams.engine.workload.sizing.explanation import Facts, explained
from flyball_streams.engine.workload.sizing.policy import BASES, Basis, Policy, PolicyInput

MOST = 1e30
"""Limit of all inputs, so that nothing overflows."""
IN_GPUS = "GPUs"
"""Source of a capacity in busy GPUs instead of work."""
POLICIES: dict[str, Policy] = {
    "slo_headroom": slo_headroom.POLICY,
    "lead_time_headroom": lead_time_headroom.POLICY,
    "forecast_band": forecast_band.POLICY,
}
"""Policies by their name in the configuration, except ``shadow_selection``, see :func:`policy_of`."""


class TargetReplicas(msgspec.Struct, frozen=True):
    """Target replicas of one workload, the reason, and the numbers of ``tick``; ``id`` is the proposal's.

    A proposal that was not granted is repeated each tick, with the same id while its content stays the same.
    """

    id: str
    tick: int
    running: int
    replicas: int
    reason: str
    confidence: float
    evidence: tuple[Evidence, ...]


class Job(NamedTuple):
    """One workload to size: its specification, demand, forecast, cell, and capacity per replica.

    ``capacity`` is in work per second, or in busy GPUs if ``source`` is :data:`IN_GPUS`.
    """

    spec: WorkloadSpec
    demand: Demand
    view: View
    cell: str
    capacity: float
    source: str
    cold_start_s: float


def policy_of(name: str) -> Policy:
    """The policy of a name in the configuration."""
    if name in POLICIES:
        return POLICIES[name]
    from flyball_streams.engine.workload.sizing import shadow_selection  # loads numba, which no other policy needs

    return shadow_selection.POLICY


def forecast_id(cell: str, workload: str, index: int) -> str:
    """Id of the forecast of a workload made at a tick."""
    return record_id("Forecast", cell, workload, index)


def observed_work(demand: Demand, sustained_known: bool, in_work: bool) -> float | None:
    """Demand of a tick: work per second, or busy GPUs if work or its capacity is unknown.

    ``in_work`` means that the series is already in work per second: a tick without work is then a gap.
    """
    if demand.work_rate is not None and sustained_known:
        return demand.work_rate
    return None if in_work else demand.utilization_sum


class Sizer:
    """Sizes all workloads of a cell at once; its state is in :class:`Columns`.

    Ticks that size nothing are kept and added together: in a row, they take half the time of the same ticks apart.
    """

    def __init__(self, forecast: ForecastParameters, sizing: SizingParameters, forecaster: Forecaster) -> None:
        self.forecast = forecast
        self.sizing = sizing
        self.forecaster = forecaster
        self.policy = policy_of(sizing.policy)
        self._columns = Columns(self.policy.floats)
        self._kept: list[tuple[Tick, list[Job]]] = []
        self.objectives = slo_headroom.Objectives(sizing, self.policy.rule)
        self.wants: dict[str, TargetReplicas] = {}
        self.needs: dict[str, float] = {}
        """Replicas that workloads need, NaN if unknown, before any grants."""

    @property
    def columns(self) -> Columns:
        """The state, with all ticks so far."""
        self._observe_kept()
        return self._columns

    def state(self) -> dict[str, Any]:
        """State for a snapshot."""
        return {
            "columns": self.columns.state(),
            "objectives": self.objectives.state(),
            "wants": {name: pack_struct(w) for name, w in self.wants.items()},
            "needs": self.needs,
        }

    def load(self, state: dict[str, Any]) -> None:
        """Replace the state by that of a snapshot."""
        self._kept = []
        self.columns.load(state["columns"])
        self.wants = {name: unpack_struct(raw, TargetReplicas) for name, raw in state["wants"].items()}
        self.needs = dict(state["needs"])
        self.objectives.load(state["objectives"], self.columns.room)

    def keep(self, names: set[str]) -> None:
        """Drop all other workloads."""
        added = (job.spec.workload for _, jobs in self._kept[-1:] for job in jobs)
        if not names.issuperset(self._columns.rows) or not names.issuperset(added):
            self.columns.keep(names)
            self.objectives.reread()

    def work_of_request(self, name: str) -> float:
        """Recent mean work of a request; NaN if unknown."""
        return self.columns.work_of_request(name)

    def step(self, tick: Tick, jobs: list[Job]) -> list[TargetReplicas | None]:
        """Replicas for each job, ``None`` to keep the running ones.

        Each tick updates the state. Needs are computed when a five-second sample ends, or at once when requests wait
        and nothing runs: more often would use the same minutes again. A workload that is not among the jobs is kept as
        it is, because its need is unknown. A sum that lacks a source looks like a drop: it is not used, and does not
        remove a replica.
        """
        if not jobs:
            self.wants, self.needs = {}, {}
            return []
        ends = ends_sample(tick)
        if not ends and len(self._kept) < MOST_KEPT and all(job.demand.replicas for job in jobs):
            self._kept.append((tick, jobs))
            return [self._wanted_before(job) for job in jobs]
        columns, sizing, complete = self.columns, self.sizing, not tick.missing
        rows, seen, observed, (usual, least, most) = self._observe(tick, jobs)
        waits = seen.queued > 0.0
        demanded = waits | (seen.requests > 0.0) | (seen.active > 0.0) | (seen.work > 0.0)
        if not (ends or (demanded & (seen.replicas == 0.0)).any()):
            return [self._wanted_before(job) for job in jobs]
        basis = self.policy.need(self._shown(tick, jobs, rows, seen, columns.backlog(rows, observed), usual))
        self.needs = dict(zip((job.spec.workload for job in jobs), basis.replicas.tolist(), strict=True))
        wanted = np.where(np.isfinite(basis.replicas), basis.replicas, seen.replicas)
        idle = (columns.request_work.idle_s[rows] >= sizing.scale_to_zero_after_s) & (
            sizing.scale_to_zero_after_s > 0.0
        )
        kept = ((seen.replicas > 0.0) & ~idle) | (columns.request_work.idle_s[rows] < 0.0)
        least_now = np.where((least > 0.0) | demanded | kept, np.maximum(least, 1.0), 0.0)
        wanted = np.clip(np.where(least_now == 0.0, 0.0, wanted), least_now, most)
        if not complete:
            wanted = np.maximum(wanted, seen.replicas)
        granted = bounded(
            wanted, seen.replicas, seen.ready, waits, sizing.tolerance, sizing.max_scale_in, sizing.growth
        )
        granted = np.where(wanted == 0.0, 0.0, np.maximum(granted, np.minimum(wanted, least_now)))
        before, self.wants = self.wants, {}
        for i, job in enumerate(jobs):
            running, replicas, name = job.demand.replicas, int(granted[i]), job.spec.workload
            if replicas == running:
                continue
            want = before.get(name)
            again = want is not None and (want.running, want.replicas) == (running, replicas)
            if want is None or not again or not 0 <= tick.index - want.tick < REPEAT_IN_FULL_TICKS:
                want = self._want(tick, job, i, int(rows[i]), granted, wanted, basis)
            self.wants[name] = want
        return [self.wants.get(job.spec.workload) for job in jobs]

    def _observe_kept(self) -> None:
        """Add the kept ticks, one after the other."""
        kept, self._kept = self._kept, []
        for tick, jobs in kept:
            self._observe(tick, jobs)

    def _observe(self, tick: Tick, jobs: list[Job]) -> tuple[Ints, Observed, Observed, slo_headroom.Allowed]:
        """Add a tick; return the rows of the jobs, the observations, those of them that count, and the limits."""
        columns = self._columns
        rows = columns.place([job.spec.workload for job in jobs])
        allowed = self.objectives.note(rows, [job.spec for job in jobs], columns.room)
        seen = _seen(jobs)
        self.objectives.terms.lead[rows] = minutes(seen.cold_start_s)
        observed = seen._replace(work=np.full(len(jobs), np.nan)) if tick.missing else seen
        columns.observe(tick, rows, observed, self.objectives.terms, *allowed)
        return rows, seen, observed, allowed

    def _wanted_before(self, job: Job) -> TargetReplicas | None:
        want = self.wants.get(job.spec.workload)
        return want if want is not None and want.running == job.demand.replicas else None

    def _shown(
        self, tick: Tick, jobs: list[Job], rows: Ints, seen: Observed, backlog: Floats, usual: Floats
    ) -> PolicyInput:
        period_s = tick.period_ns / NS_PER_S
        slots = np.array([job.view.slot for job in jobs], np.int64)
        return PolicyInput(
            t_s=tick.end_ns / NS_PER_S,
            period_s=period_s,
            columns=self.columns,
            terms=self.objectives.terms,
            rows=rows,
            seen=seen,
            now=np.array([job.view.observed for job in jobs]),
            backlog=backlog,
            usual=usual,
            lead=np.clip(np.ceil(seen.cold_start_s / period_s), 1, self.forecast.horizon_ticks).astype(np.int64),
            slots=slots,
            trusted=jobs[0].view.made.trusted[slots],
            forecaster=self.forecaster,
            forecast=self.forecast,
            sizing=self.sizing,
        )

    def _want(
        self, tick: Tick, job: Job, i: int, row: int, granted: Floats, wanted: Floats, basis: Basis
    ) -> TargetReplicas:
        columns, terms = self.columns, self.objectives.terms
        facts = Facts(
            policy=self.sizing.policy,
            base=BASES[int(basis.base[i])],
            spec=job.spec,
            demand=job.demand,
            view=job.view,
            levels=self.forecast.levels,
            tolerance=self.forecast.trust_tolerance,
            forecast_id=forecast_id(job.cell, job.spec.workload, tick.index),
            source=job.source,
            capacity=job.capacity,
            granted=int(granted[i]),
            wanted=int(wanted[i]),
            needed=float(basis.replicas[i]),
            work=float(basis.work[i]),
            load=float(basis.load[i]),
            ahead=float(basis.ahead[i]),
            level_of=float(basis.level[i]),
            lead_s=float(basis.lead_s[i]),
            level=float(columns.need.level[row]),
            spread=float(columns.need.spread[row]),
            z=float(terms.z[row] + columns.need.shift[row]),
            error=math.sqrt(columns.need.error[row]),
            lead_minutes=int(terms.lead[row]),
            keep_s=self.sizing.stabilization_window_s,
            minutes=int(columns.need.minutes[row]),
            share=1.0 - float(terms.allowed[row]),
            delay_s=float(terms.delay_s[row]),
            idle_s=float(columns.request_work.idle_s[row]),
            hpa=float(columns.rival.replicas[row]),
            led=self.policy.led(columns.own[row]) if self.policy.led is not None else None,
        )
        reason, confidence, evidence = explained(facts)
        identity = record_id("Proposal", "scale", job.cell, job.spec.workload, tick.index)
        return TargetReplicas(identity, tick.index, job.demand.replicas, facts.granted, reason, confidence, evidence)


def _seen(jobs: list[Job]) -> Observed:
    """Observations of the jobs, and the capacity of a replica."""
    observed = [
        (
            job.view.observed,
            demand.request_rate,
            demand.queued,
            demand.active,
            demand.ready,
            demand.replicas,
            job.capacity,
            job.cold_start_s,
            job.source == IN_GPUS,
        )
        for job in jobs
        for demand in (job.demand,)
    ]
    return Observed(*np.clip(np.array(observed, np.float64).T, -MOST, MOST))
