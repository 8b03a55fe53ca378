"""Work of a workload's replica on each offer of its cell, from which the cell lane chooses machines."""

import math
from collections.abc import Mapping

from flyball_contracts.config import Offer
from flyball_contracts.ids import record_id
from flyball_contracts.records import Alternatives, Proposal, WorkloadSpec
from flyball_models.capacity import gpus
from flyball_models.rightsizing import mig
from flyball_streams.engine.offers import Holdings, Kind, is_chosen_for, mean_work
from flyball_streams.engine.workload.capacity.capacities import requests_on
from flyball_streams.engine.workload.sizing.sizer import Job, TargetReplicas


class PerOffer:
    """Work of replicas by offer, for the workloads of one cell; unused without ``offers``."""

    def __init__(self, holdings: Holdings) -> None:
        self.holdings = holdings
        self._by_architecture: dict[str, tuple[WorkloadSpec, dict[str, float]]] = {}

    def of(self, job: Job, need: float) -> Alternatives | None:
        """Offers that serve a workload, and its needed replicas (NaN: unknown); ``None`` if no offer serves it."""
        spec, running = job.spec, job.demand.replicas
        if not is_chosen_for(spec) or spec.cell != self.holdings.cell:
            return None
        work = self._work(spec)
        if not work:
            return None
        return Alternatives(
            work=work,
            reference=self._reference(job, work),
            cold_start_s=job.cold_start_s,
            needed=math.ceil(need) if need < running else None,
        )

    def keep(self, names: set[str]) -> None:
        """Drop all other workloads."""
        for name in self._by_architecture.keys() - names:
            del self._by_architecture[name]

    def _work(self, spec: WorkloadSpec) -> dict[str, float]:
        """Work of a replica on each accepted offer that is known to serve the workload, in a common unit.

        From the architecture if the owner declares it, else from the offers' ``speed``; else 1 for the kind of GPU that
        it runs on, or would run on if all offers have one kind.
        """
        offers = self.holdings.offers
        if spec.model is not None:
            known = self._by_architecture.get(spec.workload)
            if known is None or known[0] is not spec:
                found = {name: sustained(spec, _kind(o)) for name, o in offers.items() if _accepts(spec, o)}
                known = spec, {name: work for name, work in found.items() if work > 0}
                self._by_architecture[spec.workload] = known
            return known[1]
        accepted = {name: o for name, o in offers.items() if _accepts(spec, o)}
        declared = {name: o.speed for name, o in accepted.items() if o.speed is not None}
        held = self.holdings.held(spec.workload).counts
        if declared and all(name in declared for name, n in held.items() if n and name in accepted):
            return declared
        kinds = {_kind(o) for name, o in accepted.items() if held[name]} or {_kind(o) for o in accepted.values()}
        return {name: 1.0 for name, o in accepted.items() if {_kind(o)} == kinds}

    def _reference(self, job: Job, work: Mapping[str, float]) -> float:
        """Work of a replica as the sizer counts it: the least if its capacity is the owner's, else the running mean."""
        if job.source == "owner":
            return min(work.values())
        return mean_work(work, self.holdings.held(job.spec.workload).counts)


def proposed(job: Job, want: TargetReplicas | None, there: Alternatives) -> Proposal:
    """The proposal to choose machines; its id stays the same while its content does."""
    running, name = job.demand.replicas, job.spec.workload
    needed = running if there.needed is None else there.needed
    content = (there.work, there.reference, there.cold_start_s, there.needed, running)
    return Proposal(
        id=record_id("Proposal", "choose", job.cell, name, repr(content), "" if want is None else want.id),
        action="choose",
        workload=name,
        reason=f"{running} replicas run, and {needed} would do" if want is None else want.reason,
        replicas=running if want is None else want.replicas,
        observed_replicas=running,
        alternatives=there,
        confidence=0.7 if want is None else want.confidence,
        evidence=() if want is None else want.evidence,
    )


def sustained(spec: WorkloadSpec, kind: Kind) -> float:
    """Requests per second that a replica sustains on a kind of GPU by the architecture; 0: none, or unknown."""
    chip = gpus.find(kind[0])
    if chip is None or spec.model is None:
        return 0.0
    if kind[1]:
        part = next((p for p in mig.profiles(kind[0], chip.memory_bytes) if p.name == kind[1]), None)
        if part is None:
            return 0.0
        share, memory = part.share, part.memory_bytes / chip.memory_bytes
        flops_16, flops_8, bandwidth = chip.flops_16 * share, chip.flops_8 * share, chip.bandwidth_bytes_per_s * memory
        chip = gpus.Gpu(chip.name, flops_16, flops_8, bandwidth, part.memory_bytes)
    return requests_on(spec, spec.model, chip)


def _accepts(spec: WorkloadSpec, offer: Offer) -> bool:
    return not spec.gpu_models or offer.gpu_model in spec.gpu_models


def _kind(offer: Offer) -> Kind:
    return offer.gpu_model, offer.gpu_profile
