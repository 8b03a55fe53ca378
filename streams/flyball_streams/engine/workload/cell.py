"""The workload lane's view of one cell: demand by tick, forecasts, plans and wishes."""

import math
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np

from flyball_contracts.config import WorkerConfig
from flyball_contracts.ids import NS_PER_S, record_id
from flyball_contracts.records import (
    Demand,
    Evidence,
    Forecast,
    Plan,
    Proposal,
    Record,
    Tick,
    TickClosed,
    WorkloadSpec,
)
from flyball_streams.engine.directory import Directory
from flyball_streams.engine.packing import pack_struct, unpack_struct
from flyball_streams.engine.workload import timing
from flyball_streams.engine.workload.forecaster import Forecaster, View
from flyball_streams.engine.workload.sizer import Job, observed_work, size

MODEL = "damped+conformal"
SHOWN_HORIZONS = 12


class Progress(msgspec.Struct):
    """How far a deferrable job is: the share reported last, and the seconds it was seen to run."""

    share: float | None = None
    ran_s: float = 0.0
    replicas: int = 0
    seen_tick: int = -1


class WorkloadCell:
    """Workloads of one cell in one partition."""

    def __init__(self, cell: str, source: str, config: WorkerConfig, directory: Directory) -> None:
        self.cell = cell
        self.source = source
        self.config = config
        self.directory = directory
        self.forecaster = Forecaster(config.forecast)
        self.progress: dict[str, Progress] = {}
        self.plans: dict[str, Plan] = {}
        self.basis: dict[str, tuple[int, int, int]] = {}
        self.without_spec: set[str] = set()
        self.last_tick: int | None = None
        horizons = config.forecast.horizon_ticks
        self.shown = sorted({round(h) for h in np.linspace(1, horizons, min(SHOWN_HORIZONS, horizons)).tolist()})
        self.shown_rows = np.array(self.shown) - 1

    def close(self, tick: Tick, parts: list[Demand], owned: list[WorkloadSpec]) -> Iterator[Record]:
        """Records of one closed tick, in a fixed order, the mark last; ``owned`` are this partition's workloads."""
        demands = merge(parts)
        yield from self._sized(tick, demands)
        for spec in owned:
            if timing.is_deferrable(spec):
                yield from self._timed(tick, spec, demands.get(spec.workload))
        yield TickClosed(cell=self.cell, source=self.source, tick=tick)

    def state(self) -> dict[str, Any]:
        """State for a snapshot."""
        return {
            "forecaster": self.forecaster.state(),
            "progress": {name: pack_struct(p) for name, p in self.progress.items()},
            "plans": {name: pack_struct(p) for name, p in self.plans.items()},
            "basis": {name: list(b) for name, b in self.basis.items()},
            "last_tick": self.last_tick,
        }

    def load(self, state: dict[str, Any]) -> None:
        """Take on the state of a snapshot."""
        self.forecaster.load(state["forecaster"])
        self.progress = {name: unpack_struct(raw, Progress) for name, raw in state["progress"].items()}
        self.plans = {name: unpack_struct(raw, Plan) for name, raw in state["plans"].items()}
        self.basis = {name: (b[0], b[1], b[2]) for name, b in state["basis"].items()}
        self.last_tick = state["last_tick"]

    def _sized(self, tick: Tick, demands: dict[str, Demand]) -> Iterator[Record]:
        observed: dict[str, float] = {}
        specs: dict[str, WorkloadSpec] = {}
        for name, demand in demands.items():
            spec = self.directory.spec(name)
            if spec is None:
                self.without_spec.add(name)
                continue
            self.without_spec.discard(name)
            specs[name] = spec
            work = observed_work(spec, demand)
            if work is not None and math.isfinite(work):
                observed[name] = work
        jobs: list[Job] = []
        skipped = tick.index - self.last_tick - 1 if self.last_tick is not None else 0
        for _ in range(min(skipped, self.config.forecast.horizon_ticks)):
            self.forecaster.step({})  # nobody reported, but horizons go by
        self.last_tick = tick.index
        for name, view in self.forecaster.step(observed).items():
            forecast = self._forecast(name, view, tick)
            yield forecast
            if specs[name].kind == "inference":
                jobs.append(Job(specs[name], demands[name], view, forecast.id))
        period_s = tick.period_ns / NS_PER_S
        for job, want in zip(jobs, size(jobs, period_s, self.config.forecast, self.config.sizing), strict=True):
            if want is not None:
                yield self._proposal(
                    tick,
                    job.spec.workload,
                    "scale",
                    want.reason,
                    replicas=want.replicas,
                    observed=job.demand.replicas,
                    confidence=want.confidence,
                    evidence=want.evidence,
                )

    def _forecast(self, name: str, view: View, tick: Tick) -> Forecast:
        known = bool(np.isfinite(view.coverage).all())
        return Forecast(
            id=record_id("Forecast", self.cell, name, tick.index),
            subject=name,
            cell=self.cell,
            time_ns=tick.end_ns,
            observed=view.observed,
            levels=self.config.forecast.levels,
            horizon_s=tuple(h * tick.period_ns / NS_PER_S for h in self.shown),
            quantiles=tuple(map(tuple, view.quantiles[self.shown_rows].tolist())),
            coverage=tuple(view.coverage.tolist()) if known else (),
            trusted=view.trusted,
            model=MODEL,
        )

    def _timed(self, tick: Tick, spec: WorkloadSpec, demand: Demand | None) -> Iterator[Record]:
        progress = self.progress.setdefault(spec.workload, Progress())
        progress.replicas = demand.replicas if demand is not None else 0
        if demand is not None:
            progress.seen_tick = tick.index
            if demand.progress is not None:
                progress.share = demand.progress
            if demand.ready:
                progress.ran_s += tick.period_ns / NS_PER_S
        plan = self._plan(tick, spec, progress)
        if plan is None:
            return
        if plan is not self.plans.get(spec.workload):
            self.plans[spec.workload] = plan
            yield plan
        yield from self._timing_wish(tick, spec, progress, plan)

    def _plan(self, tick: Tick, spec: WorkloadSpec, progress: Progress) -> Plan | None:
        """Plan in force: made anew at each slot, and when the curve or the specification changes."""
        zone = self.directory.zone_of(spec.workload, self.cell)
        signal = self.directory.signals.get((zone, "carbon_intensity"))
        if signal is None:
            return None
        basis = (timing.slot_start(tick.end_ns, self.config.timing), signal.published_ns, spec.time_ns)
        if self.basis.get(spec.workload) == basis:
            return self.plans.get(spec.workload)
        self.basis[spec.workload] = basis
        duration_s = spec.duration_s or 0.0
        done_s = progress.ran_s if progress.share is None else progress.share * duration_s
        job = timing.Deferrable(spec, duration_s - done_s, zone)
        return timing.make_plan(job, signal, tick.end_ns, self.cell, self.config.timing)

    def _timing_wish(self, tick: Tick, spec: WorkloadSpec, progress: Progress, plan: Plan) -> Iterator[Proposal]:
        here = min(max(0, round((tick.end_ns - plan.start_ns) / (plan.step_s * NS_PER_S) - 0.5)), len(plan.run) - 1)
        then = timing.next_run(plan)
        now_g, runs = plan.cost[here], plan.run[here]
        if not plan.feasible and progress.replicas:
            return  # it runs already and every slot counts
        if not runs and progress.replicas and then is not None:
            later_g = float(np.mean([c for c, r in zip(plan.cost, plan.run, strict=True) if r]))
            yield self._proposal(
                tick,
                spec.workload,
                "pause",
                f"carbon is {now_g:.0f} g/kWh in {plan.zone} now and {later_g:.0f} g/kWh in the slots planned before "
                f"the deadline: waiting saves {plan.saving:.0%}",
                replicas=0,
                observed=progress.replicas,
                confidence=0.7,
                evidence=_carbon_evidence(plan, now_g, later_g),
                until_ns=then,
                saving=plan.saving,
            )
        elif runs and not progress.replicas:
            replicas = max(1, min(spec.gang_size, spec.max_replicas))
            yield self._proposal(
                tick,
                spec.workload,
                "scale",
                f"the plan runs this job now, at {now_g:.0f} g/kWh in {plan.zone}, to end before its deadline",
                replicas=replicas,
                observed=0,
                confidence=0.7,
                evidence=_carbon_evidence(plan, now_g, now_g),
                saving=plan.saving,
            )

    def _proposal(
        self,
        tick: Tick,
        workload: str,
        wish: str,
        reason: str,
        *,
        replicas: int,
        observed: int,
        confidence: float,
        evidence: tuple[Evidence, ...],
        until_ns: int | None = None,
        saving: float | None = None,
    ) -> Proposal:
        return Proposal(
            id=record_id("Proposal", wish, self.cell, workload, tick.index),
            cell=self.cell,
            source=self.source,
            tick=tick,
            wish="pause" if wish == "pause" else "scale",
            workload=workload,
            reason=reason,
            replicas=replicas,
            observed_replicas=observed,
            until_ns=until_ns,
            confidence=confidence,
            expected_saving=saving,
            evidence=evidence,
        )


def _carbon_evidence(plan: Plan, now_g: float, later_g: float) -> tuple[Evidence, ...]:
    return (
        Evidence(name="carbon_intensity", value=now_g, expected=later_g, unit="g/kWh", record=plan.id),
        Evidence(name="saving", value=plan.saving, record=plan.id),
    )


def merge(parts: list[Demand]) -> dict[str, Demand]:
    """One demand for each workload: the sum over its sources, added in the order of their names.

    The order matters because float addition does; a value that no source knew stays unknown.
    """
    merged: dict[str, Demand] = {}
    for part in sorted(parts, key=lambda d: (d.workload, d.source)):
        have = merged.get(part.workload)
        merged[part.workload] = part if have is None else _add(have, part)
    return merged


def _add(a: Demand, b: Demand) -> Demand:
    def plus(x: float | None, y: float | None) -> float | None:
        return y if x is None else x if y is None else x + y

    known = [p for p in (a.progress, b.progress) if p is not None]
    return msgspec.structs.replace(
        a,
        replicas=a.replicas + b.replicas,
        ready=a.ready + b.ready,
        devices=a.devices + b.devices,
        work_rate=plus(a.work_rate, b.work_rate),
        request_rate=plus(a.request_rate, b.request_rate),
        queued=plus(a.queued, b.queued),
        active=plus(a.active, b.active),
        utilization_sum=plus(a.utilization_sum, b.utilization_sum),
        power_w=plus(a.power_w, b.power_w),
        progress=sum(known) / len(known) if known else None,
    )
