"""What a replica of a workload sustains on each offer of its cell: what the cell lane chooses machines by."""

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
    """What replicas of the workloads of one cell serve by offer; without ``offers`` nobody asks."""

    def __init__(self, holdings: Holdings) -> None:
        self.holdings = holdings
        self._by_architecture: dict[str, tuple[WorkloadSpec, dict[str, float]]] = {}

    def of(self, job: Job, need: float) -> Alternatives | None:
        """Offers that serve a workload, which needs so many replicas (NaN: not known); ``None`` where none does."""
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
        """Forget all other workloads."""
        for name in self._by_architecture.keys() - names:
            del self._by_architecture[name]

    def _work(self, spec: WorkloadSpec) -> dict[str, float]:
        """Work of a replica on each offer that the workload accepts and that is known to serve it, in a common unit.

        By the architecture where the owner tells it, else by what the offers say, else 1 for the kind of GPU that it
        runs on, or would if all are alike.
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
        """Work of a replica as the sizer counts it: by its owner that of the least, else the mean of what runs."""
        if job.source == "owner":
            return min(work.values())
        return mean_work(work, self.holdings.held(job.spec.workload).counts)


def proposed(job: Job, want: TargetReplicas | None, there: Alternatives) -> Proposal:
    """What the cell lane is to choose machines for; it has the same id as long as it says the same."""
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
    """Requests per second that the architecture lets a replica sustain on a kind of GPU; 0: none, or not known."""
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
