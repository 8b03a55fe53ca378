"""Deferrable jobs of one cell: their progress, their schedules, and the proposals to pause and start them."""

from collections.abc import Iterator
from typing import Any

from flyball_contracts.ids import NS_PER_S, record_id
from flyball_contracts.records import Demand, Evidence, Plan, Proposal, Signal, Tick, WorkloadSpec
from flyball_streams.engine.fleet_index import FleetIndex
from flyball_streams.engine.packing import pack_struct, unpack_struct
from flyball_streams.engine.workload.capacity.capacities import LONGEST_GAP_S, Capacities
from flyball_streams.engine.workload.proposals import Proposals
from flyball_streams.engine.workload.timing import schedule
from flyball_streams.engine.workload.timing.intensity import Week
from flyball_streams.engine.workload.timing.progress import Progress


class Deferral:
    """Schedules the deferrable workloads of one cell in one partition."""

    def __init__(self, cell: str, slot_s: float, directory: FleetIndex, capacities: Capacities) -> None:
        self.cell = cell
        self.slot_s = slot_s
        self.directory = directory
        self.capacities = capacities
        self.progress: dict[str, Progress] = {}
        self.plans: dict[str, Plan] = {}
        self.basis: dict[str, tuple[int, int, int, bool]] = {}
        self.weeks: dict[str, Week] = {}
        self.last_ns: int | None = None
        self._owned: list[WorkloadSpec] | None = None
        self._deferrable: list[WorkloadSpec] = []

    def step(
        self, tick: Tick, owned: list[WorkloadSpec], demands: dict[str, Demand], proposals: Proposals
    ) -> Iterator[Plan]:
        """Plans made in this tick; ``owned`` are this partition's workloads, in a new list when they change."""
        if owned is not self._owned:
            self._forget({spec.workload for spec in owned})
            self._owned, self._deferrable = owned, [spec for spec in owned if schedule.is_deferrable(spec)]
        self._drop_starts_after_a_gap(tick)
        self._remember(tick, self.directory.zone_of("", self.cell))
        for spec in self._deferrable:
            yield from self._timed(tick, spec, demands.get(spec.workload), proposals)

    def state(self) -> dict[str, Any]:
        """State for a snapshot."""
        return {
            "progress": {name: pack_struct(p) for name, p in self.progress.items()},
            "plans": {name: pack_struct(p) for name, p in self.plans.items()},
            "basis": {name: list(b) for name, b in self.basis.items()},
            "weeks": {zone: week.state() for zone, week in self.weeks.items()},
            "last_ns": self.last_ns,
        }

    def load(self, state: dict[str, Any]) -> None:
        """Replace the state by that of a snapshot."""
        self.progress = {name: unpack_struct(raw, Progress) for name, raw in state["progress"].items()}
        self.plans = {name: unpack_struct(raw, Plan) for name, raw in state["plans"].items()}
        self.basis = {name: (b[0], b[1], b[2], b[3]) for name, b in state["basis"].items()}
        self.weeks = {zone: Week.of(raw) for zone, raw in state["weeks"].items()}
        self.last_ns = state.get("last_ns")
        self._owned = None

    def _forget(self, here: set[str]) -> None:
        """Drop jobs that were removed or belong to another lane now."""
        if self.progress.keys() - here:
            self.progress = {name: p for name, p in self.progress.items() if name in here}
            self.plans = {name: p for name, p in self.plans.items() if name in here}
            self.basis = {name: b for name, b in self.basis.items() if name in here}

    def _drop_starts_after_a_gap(self, tick: Tick) -> None:
        """After a gap, it is unknown when a requested start ended, so it is not measured."""
        longest_ns = max(10 * tick.period_ns, round(LONGEST_GAP_S * NS_PER_S))
        if self.last_ns is not None and tick.end_ns - self.last_ns > longest_ns:
            for progress in self.progress.values():
                progress.requested_ns = None
        self.last_ns = tick.end_ns

    def _progress(self, tick: Tick, spec: WorkloadSpec, demand: Demand | None) -> Progress:
        """Progress of a job after a tick.

        A job that is done or past its deadline, does not run and gets a later deadline is a new run: it begins again.
        """
        progress = self.progress.setdefault(spec.workload, Progress())
        if demand is not None or not tick.missing:  # a job on the nodes of a late lane may be running
            progress.observe(tick, demand)
        plan = self.plans.get(spec.workload)
        if plan is None or progress.replicas or plan.deadline_ns >= (spec.deadline_ns or 0):
            return progress
        if plan.deadline_ns <= tick.end_ns or not any(plan.run) or progress.remaining_s(spec) <= 0:
            progress = self.progress[spec.workload] = Progress(starts_s=progress.starts_s)
        return progress

    def _remember(self, tick: Tick, zone: str) -> Signal | None:
        """Newest carbon curve of a zone; it also updates the zone's weekly means."""
        signal = self.directory.signals.get((zone, "carbon_intensity"))
        if signal is not None:
            week = self.weeks.get(zone)
            if week is None:
                week = self.weeks[zone] = Week()
            week.note(signal, tick.end_ns)
        return signal

    def _timed(self, tick: Tick, spec: WorkloadSpec, demand: Demand | None, proposals: Proposals) -> Iterator[Plan]:
        progress = self._progress(tick, spec, demand)
        zone = self.directory.zone_of(spec.workload, self.cell)
        signal = self._remember(tick, zone)
        if signal is None:
            return
        job = self._job(spec, progress)
        slot_ns = schedule.slot_start(tick.end_ns, self.slot_s)
        urgent = job.must_run(tick.end_ns)
        basis = (slot_ns, signal.published_ns, spec.time_ns, urgent)
        plan = self.plans.get(spec.workload)
        if plan is None or self.basis.get(spec.workload) != basis:
            self.basis[spec.workload] = basis
            plan = schedule.make_plan(job, signal, self.weeks[zone], tick.end_ns, self.cell, self.slot_s)
            self.plans[spec.workload] = plan
            yield plan
        self._proposal(tick, job, progress, plan, urgent, proposals)

    def _job(self, spec: WorkloadSpec, progress: Progress) -> schedule.Deferrable:
        cold_start_s = self.capacities.cold_start_s(spec)
        remaining_s = progress.remaining_s(spec)
        restart_s = progress.restart_s(spec, cold_start_s)
        running = progress.replicas > 0
        if running and not progress.ready and remaining_s > 0:
            remaining_s += restart_s
        return schedule.Deferrable(spec, remaining_s, restart_s, progress.margin_s(cold_start_s), running)

    def _proposal(
        self, tick: Tick, job: schedule.Deferrable, progress: Progress, plan: Plan, urgent: bool, proposals: Proposals
    ) -> None:
        spec, running = job.spec, progress.replicas
        here = schedule.slot_of(plan, tick.end_ns)
        urgent = urgent and job.remaining_s > 0
        runs = urgent or plan.run[here]
        if runs and not running:
            progress.note_request(tick.end_ns)
        elif not runs:
            progress.requested_ns = None
        if bool(running) == runs:
            return
        then = schedule.next_run(plan, tick.end_ns)
        if running and then is None:
            return
        identity = record_id("Proposal", self.cell, spec.workload, plan.id, here, running)
        if not proposals.is_new(identity):
            return
        now_g = plan.cost[here]
        if running:
            later_g = schedule.mean_cost(plan)
            proposals.new[identity] = Proposal(
                id=identity,
                action="pause",
                workload=spec.workload,
                reason=f"carbon is {now_g:.0f} g/kWh in {plan.zone} now and {later_g:.0f} g/kWh in the slots "
                f"planned before the deadline: waiting saves {plan.saving:.0%}, restarts included",
                replicas=0,
                observed_replicas=running,
                until_ns=then,
                confidence=0.7,
                expected_saving=plan.saving,
                evidence=_carbon_evidence(plan, now_g, later_g),
            )
            return
        whole = spec.gang_size if spec.gang_size > 1 else spec.max_replicas
        at = f"at {now_g:.0f} g/kWh in {plan.zone}"
        proposals.new[identity] = Proposal(
            id=identity,
            action="scale",
            workload=spec.workload,
            reason=_why_now(job, plan, urgent, at),
            replicas=max(1, min(whole, spec.max_replicas)),
            observed_replicas=0,
            confidence=0.7,
            expected_saving=plan.saving,
            evidence=_carbon_evidence(plan, now_g, now_g),
        )


def _why_now(job: schedule.Deferrable, plan: Plan, urgent: bool, at: str) -> str:
    if not plan.feasible:
        return f"this job cannot end by its deadline any more and runs at once, {at}"
    if urgent:
        return (
            f"this job must start now, {at}, to end by its deadline: {job.remaining_s / 60:.0f} min of work, "
            f"{job.restart_s / 60:.0f} min to start and a reserve of {job.margin_s / 60:.0f} min"
        )
    return f"the plan runs this job now, {at}, to end before its deadline"


def _carbon_evidence(plan: Plan, now_g: float, later_g: float) -> tuple[Evidence, ...]:
    return (
        Evidence(name="carbon_intensity", value=now_g, expected=later_g, unit="g/kWh", record=plan.id),
        Evidence(name="saving", value=plan.saving, record=plan.id),
    )
