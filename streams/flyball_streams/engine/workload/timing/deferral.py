"""Deferrable jobs of one cell: their progress, their schedules, and the proposals to pause and start them."""

from collections.abc import Iterator
from typing import Any

from flyball_contracts.ids import NS_PER_S, record_id
from flyball_contracts.records import Demand, Plan, Proposal, Tick, WorkloadSpec
from flyball_contracts.records.signals import SignalKind
from flyball_streams.engine.fleet_index import FleetIndex
from flyball_streams.engine.packing import pack_struct, unpack_struct
from flyball_streams.engine.workload.capacity.capacities import LONGEST_GAP_S, Capacities
from flyball_streams.engine.workload.proposals import Proposals
from flyball_streams.engine.workload.timing import schedule
from flyball_streams.engine.workload.timing.intensity import Week
from flyball_streams.engine.workload.timing.progress import Progress
from flyball_streams.engine.workload.timing.reasons import evidence, why_now, why_wait


class Deferral:
    """Schedules the deferrable workloads of one cell in one partition."""

    def __init__(self, cell: str, slot_s: float, directory: FleetIndex, capacities: Capacities) -> None:
        self.cell = cell
        self.slot_s = slot_s
        self.directory = directory
        self.capacities = capacities
        self.progress: dict[str, Progress] = {}
        self.plans: dict[str, Plan] = {}
        self.basis: dict[str, tuple[int, int, int, bool, int]] = {}
        self.weeks: dict[str, Week] = {}
        self.price_weeks: dict[str, Week] = {}
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
        self._curves(tick, self.directory.zone_of("", self.cell))
        for spec in self._deferrable:
            yield from self._timed(tick, spec, demands.get(spec.workload), proposals)

    def state(self) -> dict[str, Any]:
        """State for a snapshot."""
        return {
            "progress": {name: pack_struct(p) for name, p in self.progress.items()},
            "plans": {name: pack_struct(p) for name, p in self.plans.items()},
            "basis": {name: list(b) for name, b in self.basis.items()},
            "weeks": {zone: week.state() for zone, week in self.weeks.items()},
            "price_weeks": {zone: week.state() for zone, week in self.price_weeks.items()},
            "last_ns": self.last_ns,
        }

    def load(self, state: dict[str, Any]) -> None:
        """Replace the state by that of a snapshot."""
        self.progress = {name: unpack_struct(raw, Progress) for name, raw in state["progress"].items()}
        self.plans = {name: unpack_struct(raw, Plan) for name, raw in state["plans"].items()}
        self.basis = {name: (*b[:4], b[4] if len(b) > 4 else 0) for name, b in state["basis"].items()}
        self.weeks = {zone: Week.of(raw) for zone, raw in state["weeks"].items()}
        self.price_weeks = {zone: Week.of(raw) for zone, raw in state.get("price_weeks", {}).items()}
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

    def _curves(self, tick: Tick, zone: str) -> tuple[schedule.Curve | None, schedule.Curve | None]:
        """Newest curves of carbon and price in a zone; they also update its weekly means."""
        carbon = self._curve(tick, zone, "carbon_intensity", self.weeks)
        return carbon, self._curve(tick, zone, "electricity_price", self.price_weeks)

    def _curve(self, tick: Tick, zone: str, kind: SignalKind, weeks: dict[str, Week]) -> schedule.Curve | None:
        signal = self.directory.signals.get((zone, kind))
        if signal is None:
            return None
        week = weeks.get(zone)
        if week is None:
            week = weeks[zone] = Week()
        week.note(signal, tick.end_ns)
        return schedule.Curve(signal, week)

    def _timed(self, tick: Tick, spec: WorkloadSpec, demand: Demand | None, proposals: Proposals) -> Iterator[Plan]:
        progress = self._progress(tick, spec, demand)
        zone = self.directory.zone_of(spec.workload, self.cell)
        carbon, price = self._curves(tick, zone)
        if carbon is None and price is None:
            return
        job = self._job(spec, progress)
        slot_ns = schedule.slot_start(tick.end_ns, self.slot_s)
        urgent = job.must_run(tick.end_ns)
        carbon_ns, price_ns = (0 if curve is None else curve.signal.published_ns for curve in (carbon, price))
        basis = (slot_ns, carbon_ns, spec.time_ns, urgent, price_ns)
        plan = self.plans.get(spec.workload)
        if plan is None or self.basis.get(spec.workload) != basis:
            self.basis[spec.workload] = basis
            plan = schedule.make_plan(job, carbon, price, zone, tick.end_ns, self.cell, self.slot_s)
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
        if running:
            proposals.new[identity] = Proposal(
                id=identity,
                action="pause",
                workload=spec.workload,
                reason=why_wait(plan, here),
                replicas=0,
                observed_replicas=running,
                until_ns=then,
                confidence=0.7,
                expected_saving=plan.saving,
                evidence=evidence(plan, here, waits=True),
            )
            return
        whole = spec.gang_size if spec.gang_size > 1 else spec.max_replicas
        proposals.new[identity] = Proposal(
            id=identity,
            action="scale",
            workload=spec.workload,
            reason=why_now(job, plan, here, urgent=urgent),
            replicas=max(1, min(whole, spec.max_replicas)),
            observed_replicas=0,
            confidence=0.7,
            expected_saving=plan.saving,
            evidence=evidence(plan, here, waits=False),
        )
