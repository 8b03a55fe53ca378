"""One cell in a workload lane: demand by tick, forecasts, schedules and proposals."""

import logging
import math
from collections.abc import Collection, Iterator
from functools import lru_cache
from typing import Any
from zlib import crc32

from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import (
    Arrivals,
    Demand,
    Proposal,
    Record,
    TableOffsets,
    Tick,
    WorkloadSpec,
)
from flyball_streams.engine.fleet_index import FleetIndex
from flyball_streams.engine.offers import Holdings
from flyball_streams.engine.offsets import NO_OFFSETS
from flyball_streams.engine.parameters import Parameters
from flyball_streams.engine.symptoms import symptom_of
from flyball_streams.engine.workload.arrivals import (
    NOTHING,
    BySource,
    merge_arrivals,
    with_arrivals,
    with_unserved,
)
from flyball_streams.engine.workload.capacity.alternatives import PerOffer, proposed
from flyball_streams.engine.workload.capacity.capacities import Capacities
from flyball_streams.engine.workload.courses import Courses
from flyball_streams.engine.workload.forecast.forecaster import Forecaster, View
from flyball_streams.engine.workload.forecast.history import History
from flyball_streams.engine.workload.forecast.records import Forecasts
from flyball_streams.engine.workload.profile.workloads import WorkloadProfiles
from flyball_streams.engine.workload.proposals import Proposals
from flyball_streams.engine.workload.replica_latencies import ReplicaLatencies
from flyball_streams.engine.workload.rightsizing import Rightsizing
from flyball_streams.engine.workload.silent_lanes import SilentLanes
from flyball_streams.engine.workload.sizing.sizer import Job, Sizer, TargetReplicas, observed_work
from flyball_streams.engine.workload.step_times import StepTimes
from flyball_streams.engine.workload.stragglers import Stragglers
from flyball_streams.engine.workload.timing.deferral import Deferral

log = logging.getLogger(__name__)
MOST_WORK = 1e30
"""Work per second above which a value is a telemetry error: float32 ends at 3e38."""


class WorkloadCell:
    """Workloads of one cell in one partition; with ``node_partitions`` it also detects silent node lanes."""

    def __init__(
        self,
        cell: str,
        source: str,
        config: Parameters,
        directory: FleetIndex,
        history: History | None = None,
        node_partitions: int = 0,
    ) -> None:
        self.cell = cell
        self.source = source
        self.config = config
        self.directory = directory
        self.forecaster = Forecaster(config.forecast)
        self.forecasts = Forecasts(cell, config.forecast)
        self.history = history
        self.capacities = Capacities(cell, config, directory)
        self.profiles = WorkloadProfiles(cell, self.capacities.starts)
        self.sizer = Sizer(config.forecast, config.sizing, self.forecaster)
        self.rightsizing = Rightsizing(cell, config.rightsizing, directory)
        self.per_offer = PerOffer(Holdings(cell, config.choice.usable, directory))
        self.stragglers = Stragglers(cell)
        self.step_times = StepTimes(cell, config.health)
        self.courses = Courses(cell, config.health)
        self.latencies = ReplicaLatencies(cell, config.health, directory)
        self.deferral = Deferral(cell, config.slot_s, directory, self.capacities)
        self.silent_lanes = SilentLanes(node_partitions) if node_partitions else None
        self.in_work: set[str] = set()
        self.without_spec: set[str] = set()
        self.last_tick: int | None = None
        self.published: dict[str, int] = {}

    def close(
        self,
        tick: Tick,
        demands: dict[str, Demand],
        owned: list[WorkloadSpec],
        by_source: BySource = NOTHING,
        table_offsets: TableOffsets = NO_OFFSETS,
        sources: Collection[str] = (),
    ) -> Iterator[Record]:
        """Records of one closed tick, in a fixed order, proposals last.

        ``owned`` are this partition's workloads, ``by_source`` the arrivals at gateways. ``table_offsets`` are
        published with the proposals, and ``sources`` are the lanes that reported the tick.
        """
        arrived = merge_arrivals(by_source) if by_source else {}
        if arrived:
            demands = with_unserved(demands, arrived)
        proposals = Proposals(self.published, tick.index)
        yield from self._sized(tick, demands, arrived, proposals)
        for proposal in self.rightsizing.step(tick, demands, self.profiles.bound):
            proposals.new[proposal.id] = proposal
        self._drop_removed(owned)
        for anomaly in (
            *self.stragglers.step(tick, demands, proposals),
            *self.step_times.step(tick, demands),
            *self.courses.step(tick, demands),
            *self.latencies.step(tick, demands),
        ):
            proposals.symptoms.append(symptom_of(anomaly))
            yield anomaly
        if self.silent_lanes is not None:
            proposals.symptoms += self.silent_lanes.step(tick, sources, self.directory.nodes(self.cell))
        yield from self.deferral.step(tick, owned, demands, proposals)
        self.published = proposals.published()
        yield from proposals.messages(self.cell, self.source, tick, table_offsets)

    def state(self) -> dict[str, Any]:
        """State for a snapshot."""
        return {
            "forecaster": self.forecaster.state(),
            "capacities": self.capacities.state(),
            "profiles": self.profiles.state(),
            "sizer": self.sizer.state(),
            "rightsizing": self.rightsizing.state(),
            "stragglers": self.stragglers.state(),
            "step_times": self.step_times.state(),
            "courses": self.courses.state(),
            "latencies": self.latencies.state(),
            "deferral": self.deferral.state(),
            "in_work": sorted(self.in_work),
            "published": self.published,
            "last_tick": self.last_tick,
            "silent_lanes": self.silent_lanes.state() if self.silent_lanes is not None else None,
        }

    def load(self, state: dict[str, Any]) -> None:
        """Replace the state by that of a snapshot."""
        self.history = None
        self.forecaster.load(state["forecaster"])
        self.capacities.load(state["capacities"])
        self.profiles.load(state["profiles"])
        self.sizer.load(state["sizer"])
        self.rightsizing.load(state["rightsizing"])
        self.stragglers.load(state["stragglers"])
        self.step_times.load(state["step_times"])
        self.courses.load(state["courses"])
        self.latencies.load(state["latencies"])
        self.deferral.load(state["deferral"])
        self.in_work = set(state["in_work"])
        self.published = dict(state["published"])
        self.last_tick = state["last_tick"]
        if self.silent_lanes is not None and state["silent_lanes"]:
            self.silent_lanes.load(state["silent_lanes"])

    def _sized(
        self, tick: Tick, demands: dict[str, Demand], arrived: dict[str, Arrivals], proposals: Proposals
    ) -> Iterator[Record]:
        observed: dict[str, float] = {}
        spec_of = self.directory.tables.spec
        specs = {name: spec for name in demands if (spec := spec_of(name)) is not None}
        yield from self.profiles.step(tick, demands, specs)
        self.capacities.observe(tick, demands, specs)
        yield from self.capacities.records(tick, demands, specs)
        if arrived:  # capacity is measured from replicas alone
            each = self.sizer.work_of_request
            demands = {n: with_arrivals(d, arrived[n], each) if n in arrived else d for n, d in demands.items()}
        other_unit: list[str] = []
        for name, spec in specs.items():
            demand = demands[name]
            in_work = self.capacities.in_work(spec)
            known = demand.work_rate is not None and in_work
            if not in_work and name in self.in_work:  # its owner withdrew the capacity, and none was measured
                self.in_work.discard(name)
                other_unit.append(name)
            work = observed_work(demand, known, name in self.in_work)
            if known and name not in self.in_work:
                self.in_work.add(name)
                if spec.capacity_per_replica <= 0:  # in GPUs until the capacity is measured
                    other_unit.append(name)
            if work is not None and abs(work) <= MOST_WORK:
                observed[name] = work
        self.forecaster.restart(other_unit)
        self.without_spec = {name for name in demands if name not in specs}
        jobs: list[Job] = []
        history, self.history = self.history, None
        if history is not None:
            self._start_from(history, tick)
        skipped = tick.index - self.last_tick - 1 if self.last_tick is not None else 0
        self.forecaster.skip(skipped)
        self.last_tick = tick.index
        views = self.forecaster.step(observed)
        every = self.config.forecast.publish_every_ticks  # workloads take turns
        due = {name: view for name, view in views.items() if (tick.index + _turn(name)) % every == 0}
        yield from self.forecasts.records(tick, due)
        for name, view in views.items():
            if specs[name].kind == "inference":
                spec, demand = specs[name], demands[name]
                sustained, cold_start_s = self.capacities.of(spec, demand), self.capacities.cold_start_s(spec)
                jobs.append(Job(spec, demand, view, self.cell, sustained.work_per_s, sustained.source, cold_start_s))
        wants = self.sizer.step(tick, jobs)
        taken = self._choosable(tick, jobs, wants, proposals) if self.per_offer.holdings.offers else frozenset[str]()
        based: dict[str, View] = {}
        for job, want in zip(jobs, wants, strict=True):
            if want is not None:
                name = job.spec.workload
                if want.tick == tick.index and name not in due:  # publish the forecast that a proposal is based on
                    based[name] = job.view
                if name not in taken and proposals.is_new(want.id):
                    proposals.new[want.id] = Proposal(
                        id=want.id,
                        action="scale",
                        workload=name,
                        reason=want.reason,
                        replicas=want.replicas,
                        observed_replicas=want.running,
                        confidence=want.confidence,
                        evidence=want.evidence,
                    )
        yield from self.forecasts.records(tick, based)

    def _choosable(
        self, tick: Tick, jobs: list[Job], wants: list[TargetReplicas | None], proposals: Proposals
    ) -> frozenset[str]:
        """Propose a choice of machines for the jobs; return those for which it replaces sizing.

        A sum that lacks a source looks like a drop, so it moves no workload to fewer machines.
        """
        taken: set[str] = set()
        for job, want in zip(jobs, wants, strict=True):
            there = self.per_offer.of(job, self.sizer.needs.get(job.spec.workload, math.nan))
            if there is None:
                continue
            taken.add(job.spec.workload)
            if want is None and tick.missing:
                continue
            proposal = proposed(job, want, there)
            if proposals.is_new(proposal.id):
                proposals.new[proposal.id] = proposal
        return frozenset(taken if self.config.choice.mode == "act" else ())

    def _start_from(self, history: History, tick: Tick) -> None:
        """Start from a history; one with another tick period is not used, with a warning for each workload."""
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

    def _drop_removed(self, owned: list[WorkloadSpec]) -> None:
        """Drop workloads that were removed or belong to another lane now."""
        here = {spec.workload for spec in owned}
        self.sizer.keep(here)
        self.per_offer.keep(here)


@lru_cache(maxsize=1 << 14)
def _turn(name: str) -> int:
    return crc32(name.encode())
