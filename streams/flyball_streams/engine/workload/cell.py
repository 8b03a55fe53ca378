"""The workload lane's view of one cell: demand by tick, forecasts, plans and wishes."""

import logging
from collections.abc import Iterator
from functools import lru_cache
from typing import Any
from zlib import crc32

import msgspec

from flyball_contracts.config import WorkerConfig
from flyball_contracts.ids import NS_PER_S, record_id
from flyball_contracts.records import (
    Arrivals,
    Demand,
    Evidence,
    Plan,
    Proposal,
    Record,
    Tick,
    WorkloadSpec,
)
from flyball_streams.engine.directory import Directory
from flyball_streams.engine.packing import pack_struct, unpack_struct
from flyball_streams.engine.workload import timing
from flyball_streams.engine.workload.arrivals import NOTHING, Told, merge_arrivals, with_arrivals, with_unserved
from flyball_streams.engine.workload.capacity import Capacities
from flyball_streams.engine.workload.choice import UNCHOSEN, Choice
from flyball_streams.engine.workload.forecaster import Forecaster, View
from flyball_streams.engine.workload.forecasts import Forecasts
from flyball_streams.engine.workload.history import History
from flyball_streams.engine.workload.rightsizing import Rightsizing
from flyball_streams.engine.workload.sizer import Job, Sizer, observed_work
from flyball_streams.engine.workload.wishes import Wishes

log = logging.getLogger(__name__)
MOST_WORK = 1e30
"""Work per second above which a sum is a fault of the telemetry: float32 ends at 3e38."""


class Progress(msgspec.Struct):
    """How far a deferrable job is: the share reported last, and the seconds it was seen to run."""

    share: float | None = None
    ran_s: float = 0.0
    replicas: int = 0
    seen_tick: int = -1


class WorkloadCell:
    """Workloads of one cell in one partition."""

    def __init__(
        self, cell: str, source: str, config: WorkerConfig, directory: Directory, history: History | None = None
    ) -> None:
        self.cell = cell
        self.source = source
        self.config = config
        self.directory = directory
        self.forecaster = Forecaster(config.forecast)
        self.forecasts = Forecasts(cell, config.forecast)
        self.history = history
        self.capacities = Capacities(cell, config, directory)
        self.sizer = Sizer(config.forecast, config.sizing, self.forecaster)
        self.rightsizing = Rightsizing(cell, config.rightsizing, directory)
        self.choice = Choice(cell, config, directory)
        self.progress: dict[str, Progress] = {}
        self.plans: dict[str, Plan] = {}
        self.basis: dict[str, tuple[int, int, int]] = {}
        self.in_work: set[str] = set()
        self.without_spec: set[str] = set()
        self.last_tick: int | None = None
        self.said: dict[str, int] = {}

    def close(
        self, tick: Tick, demands: dict[str, Demand], owned: list[WorkloadSpec], told: Told = NOTHING
    ) -> Iterator[Record]:
        """Records of one closed tick, in a fixed order, wishes last.

        ``owned`` are this partition's workloads, ``told`` is what gateways saw.
        """
        arrived = merge_arrivals(told) if told else {}
        if arrived:
            demands = with_unserved(demands, arrived)
        wishes = Wishes(self.said, tick.index)
        yield from self._sized(tick, demands, arrived, wishes)
        for proposal in self.rightsizing.step(tick, demands):
            wishes.new[proposal.id] = proposal
        self._forget(owned)
        for spec in owned:
            if timing.is_deferrable(spec):
                yield from self._timed(tick, spec, demands.get(spec.workload), wishes)
        self.said = wishes.said()
        yield from wishes.told(self.cell, self.source, tick)

    def state(self) -> dict[str, Any]:
        """State for a snapshot."""
        return {
            "forecaster": self.forecaster.state(),
            "capacities": self.capacities.state(),
            "sizer": self.sizer.state(),
            "rightsizing": self.rightsizing.state(),
            "choice": self.choice.state(),
            "progress": {name: pack_struct(p) for name, p in self.progress.items()},
            "plans": {name: pack_struct(p) for name, p in self.plans.items()},
            "basis": {name: list(b) for name, b in self.basis.items()},
            "in_work": sorted(self.in_work),
            "said": self.said,
            "last_tick": self.last_tick,
        }

    def load(self, state: dict[str, Any]) -> None:
        """Take on the state of a snapshot."""
        self.history = None
        self.forecaster.load(state["forecaster"])
        self.capacities.load(state["capacities"])
        self.sizer.load(state["sizer"])
        self.rightsizing.load(state["rightsizing"])
        self.choice.load(state["choice"])
        self.progress = {name: unpack_struct(raw, Progress) for name, raw in state["progress"].items()}
        self.plans = {name: unpack_struct(raw, Plan) for name, raw in state["plans"].items()}
        self.basis = {name: (b[0], b[1], b[2]) for name, b in state["basis"].items()}
        self.in_work = set(state["in_work"])
        self.said = dict(state["said"])
        self.last_tick = state["last_tick"]

    def _sized(
        self, tick: Tick, demands: dict[str, Demand], arrived: dict[str, Arrivals], wishes: Wishes
    ) -> Iterator[Record]:
        observed: dict[str, float] = {}
        specs = {name: spec for name in demands if (spec := self.directory.spec(name)) is not None}
        self.capacities.observe(tick, demands, specs)
        yield from self.capacities.records(tick, demands, specs)
        if arrived:  # what a replica sustains is learned from what replicas say alone
            each = self.sizer.work_of_request
            demands = {n: with_arrivals(d, arrived[n], each) if n in arrived else d for n, d in demands.items()}
        other_unit: list[str] = []
        for name, spec in specs.items():
            demand, known = demands[name], self.capacities.in_work(spec)
            work = observed_work(demand, known, name in self.in_work)
            if demand.work_rate is not None and known and name not in self.in_work:
                self.in_work.add(name)
                if spec.capacity_per_replica <= 0:  # in GPUs until it was learned what one sustains
                    other_unit.append(name)
            if work is not None and abs(work) <= MOST_WORK:
                observed[name] = work
        self.forecaster.restart(other_unit)
        self.without_spec = {name for name in demands if name not in specs}
        jobs: list[Job] = []
        history, self.history = self.history, None
        if history is not None:
            self._begin(history, tick)
        skipped = tick.index - self.last_tick - 1 if self.last_tick is not None else 0
        self.forecaster.skip(skipped)
        self.last_tick = tick.index
        views = self.forecaster.step(observed)
        due = {name: view for name, view in views.items() if self._is_due(name, tick)}
        yield from self.forecasts.records(tick, due)
        for name, view in views.items():
            if specs[name].kind == "inference":
                spec, demand = specs[name], demands[name]
                sustained, cold_start_s = self.capacities.of(spec, demand), self.capacities.cold_start_s(spec)
                jobs.append(Job(spec, demand, view, self.cell, sustained.work_per_s, sustained.source, cold_start_s))
        wants = self.sizer.step(tick, jobs)
        chosen, taken = self.choice.step(tick, jobs, wants, self.sizer.needs) if self.choice.offers else UNCHOSEN
        based: dict[str, View] = {}
        for job, want in zip(jobs, wants, strict=True):
            if want is not None:
                name = job.spec.workload
                if want.tick == tick.index and name not in due:  # what a wish rests on can be looked up
                    based[name] = job.view
                if name in taken:
                    continue
                if wishes.is_new(want.id):
                    wishes.new[want.id] = Proposal(
                        id=want.id,
                        wish="scale",
                        workload=name,
                        reason=want.reason,
                        replicas=want.replicas,
                        observed_replicas=want.running,
                        confidence=want.confidence,
                        evidence=want.evidence,
                    )
        yield from self.forecasts.records(tick, based)
        for proposal in chosen:
            if wishes.is_new(proposal.id):
                wishes.new[proposal.id] = proposal

    def _begin(self, history: History, tick: Tick) -> None:
        """Go on from a history; one whose ticks are longer or shorter is of no use, and says so for each workload."""
        if history.period_ns == tick.period_ns:
            self.forecaster.begin(history)
            self.last_tick = tick.index - 1 - history.gap(tick, self.config.forecast.season_ticks)
            return
        for name in history.names:
            log.warning(
                "forecasts of %s (cell %s) start from nothing: worker.forecast.history was recorded every %g s, and "
                "agents report every %g s now; give them that agent.period_s again, or name a recording of this one",
                name,
                self.cell,
                history.period_ns / NS_PER_S,
                tick.period_ns / NS_PER_S,
            )

    def _forget(self, owned: list[WorkloadSpec]) -> None:
        """Drop what is kept of jobs that are no longer this lane's, or no longer at all."""
        here = {spec.workload for spec in owned}
        self.sizer.keep(here)
        self.choice.keep(here)
        if self.progress.keys() - here:
            self.progress = {name: p for name, p in self.progress.items() if name in here}
            self.plans = {name: p for name, p in self.plans.items() if name in here}
            self.basis = {name: b for name, b in self.basis.items() if name in here}

    def _is_due(self, name: str, tick: Tick) -> bool:
        """Whether a forecast is published at this tick; workloads take turns."""
        return (tick.index + _turn(name)) % self.config.forecast.publish_every_ticks == 0

    def _timed(self, tick: Tick, spec: WorkloadSpec, demand: Demand | None, wishes: Wishes) -> Iterator[Record]:
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
        self._timing_wish(tick, spec, progress, plan, wishes)

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

    def _timing_wish(self, tick: Tick, spec: WorkloadSpec, progress: Progress, plan: Plan, wishes: Wishes) -> None:
        here, then = timing.slot_of(plan, tick.end_ns), timing.next_run(plan, tick.end_ns)
        now_g, runs, running = plan.cost[here], plan.run[here], progress.replicas
        if not plan.feasible and running:
            return  # it runs already and every slot counts
        if bool(running) == runs or (running and then is None):
            return
        identity = record_id("Proposal", self.cell, spec.workload, plan.id, here, running)
        if not wishes.is_new(identity):
            return
        if running:
            later_g = timing.mean_cost(plan)
            wishes.new[identity] = Proposal(
                id=identity,
                wish="pause",
                workload=spec.workload,
                reason=f"carbon is {now_g:.0f} g/kWh in {plan.zone} now and {later_g:.0f} g/kWh in the slots "
                f"planned before the deadline: waiting saves {plan.saving:.0%}",
                replicas=0,
                observed_replicas=running,
                until_ns=then,
                confidence=0.7,
                expected_saving=plan.saving,
                evidence=_carbon_evidence(plan, now_g, later_g),
            )
        else:
            whole = spec.gang_size if spec.gang_size > 1 else spec.max_replicas
            wishes.new[identity] = Proposal(
                id=identity,
                wish="scale",
                workload=spec.workload,
                reason=f"the plan runs this job now, at {now_g:.0f} g/kWh in {plan.zone}, to end before its deadline",
                replicas=max(1, min(whole, spec.max_replicas)),
                observed_replicas=0,
                confidence=0.7,
                expected_saving=plan.saving,
                evidence=_carbon_evidence(plan, now_g, now_g),
            )


@lru_cache(maxsize=1 << 14)
def _turn(name: str) -> int:
    return crc32(name.encode())


def _carbon_evidence(plan: Plan, now_g: float, later_g: float) -> tuple[Evidence, ...]:
    return (
        Evidence(name="carbon_intensity", value=now_g, expected=later_g, unit="g/kWh", record=plan.id),
        Evidence(name="saving", value=plan.saving, record=plan.id),
    )
