"""Profiles of the workloads of a cell: kind, model family, similar workloads, and priors for new ones."""

import math
from collections.abc import Iterator, Mapping
from math import isfinite
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from flyball_contracts.ids import record_id
from flyball_contracts.records import Demand, Features, Similar, Tick, WorkloadProfile, WorkloadSpec
from flyball_models.capacity.starts import p90
from flyball_models.profile import kinds
from flyball_models.profile.course import FEATURES
from flyball_models.profile.signals import decades
from flyball_streams.engine.packing import pack_struct, unpack_struct
from flyball_streams.engine.workload.capacity.starts import ColdStarts
from flyball_streams.engine.workload.profile.evidence import Errors, Estimate, by_name, combine, declared, opinion
from flyball_streams.engine.workload.profile.fingerprints import Fingerprints

Doubles = NDArray[np.float64]
MAX_PROFILES = 2048
"""Most workloads kept, those that are gone included; beyond it, the one not seen for longest is dropped."""
SURE_AFTER_S = 300.0
"""Telemetry after which a profile needs no history: earlier runs of the workload no longer count."""
LEAST_SEEN_S = 60.0
"""Telemetry that a workload needs before it is compared with others."""
LEAST_SIMILARITY = 0.1
"""Similarity below which workloads are unrelated."""
LEAST_TOTAL_SIMILARITY = 0.3
"""Sum of similarities that a prior for a new workload needs."""
SAME_NAME = 0.5
"""Similarity of workloads that can be compared by kind and model family only."""
SHOWN = 3
LEAST_STARTS = 3
"""Measured cold starts that a workload needs to count for similar ones."""
DEFAULT_COLD_START_S = next(f.default for f in msgspec.structs.fields(WorkloadSpec) if f.name == "cold_start_s")
"""The cold start of a specification without a value from its owner."""
SURE = 0.6
_GANG, _DRAM = FEATURES.index("gang"), FEATURES.index("dram")
_MOVED = 0.2
"""Weight of a new deviation in the error of a fingerprint."""


class Bound(NamedTuple):
    """The bottleneck of a workload and its probability; ``bandwidth`` is the share of memory bandwidth in use."""

    by: str
    probability: float
    bandwidth: float = math.nan

    def is_one_of(self, *names: str) -> bool:
        """Whether the bottleneck is one of these, with enough probability."""
        return self.by in names and self.probability >= SURE


UNBOUND = Bound("", 0.0)


class ProfileState(msgspec.Struct):
    """State of a workload: standardized features and their error, its distributions, and those of its last run."""

    seen_ns: int
    seen_s: float
    devices: int
    fingerprint: list[float | None]
    error: float | None
    kind: list[float]
    family: list[float]
    bound: list[float]
    family_known: bool
    historic: tuple[list[float], list[float]] | None = None
    is_judged: bool = False


class WorkloadProfiles:
    """Profiles by workload; sets the priors in ``starts`` for workloads without measured cold starts."""

    def __init__(self, cell: str, starts: ColdStarts) -> None:
        self.cell = cell
        self.starts = starts
        self.known: dict[str, ProfileState] = {}
        self.errors = Errors()
        self.table = kinds.shipped()
        self._compared = Fingerprints(self.table)

    def step(
        self, tick: Tick, demands: Mapping[str, Demand], specs: Mapping[str, WorkloadSpec]
    ) -> Iterator[WorkloadProfile]:
        """Apply the features in the demand of a tick; yield the profiles of their workloads."""
        observed = [(name, d.features, specs.get(name)) for name, d in demands.items() if d.features is not None]
        observed = [(name, seen, spec) for name, seen, spec in observed if len(seen.values) == len(FEATURES)]
        for name, owned in specs.items():
            if name not in self.known and name not in self.starts.priors and owned.kind == "inference":
                self._update_prior(name, owned, None)
        if not observed:
            return
        x = np.array([[np.nan if v is None else v for v in seen.values] for _, seen, _ in observed], np.float32).T
        x[_GANG] = decades(np.array([demands[name].devices for name, _, _ in observed], np.float32), 1.0, 3.0)
        classes = kinds.classify(x, self.table)
        z = kinds.standardised(x, self.table)
        for i, (name, seen, spec) in enumerate(observed):
            found = kinds.Classes(*(part[..., i : i + 1] for part in classes))
            yield self._profile(tick, name, seen, spec, found, z[:, i])

    def bound(self, workload: str) -> Bound:
        """The bottleneck of a workload."""
        known = self.known.get(workload)
        if known is None or known.seen_s < LEAST_SEEN_S or not known.bound:
            return UNBOUND
        best = int(np.argmax(known.bound))
        z = known.fingerprint[_DRAM]
        bandwidth = math.nan if z is None else float(z * self.table.scale[_DRAM] + self.table.mean[_DRAM])
        return Bound(self.table.bounds[best], known.bound[best], bandwidth)

    def state(self) -> dict[str, Any]:
        """State for a snapshot."""
        return {
            "known": {name: pack_struct(known) for name, known in self.known.items()},
            "errors": self.errors.counts,
        }

    def load(self, state: dict[str, Any]) -> None:
        """Replace the state by that of a snapshot."""
        self.known = {name: unpack_struct(raw, ProfileState) for name, raw in state["known"].items()}
        self._compared = Fingerprints(self.table)
        for name, known in self.known.items():
            self._compare(name, known)
        self.errors.counts = {method: list(counts) for method, counts in state["errors"].items()}

    def _profile(
        self,
        tick: Tick,
        name: str,
        seen: Features,
        spec: WorkloadSpec | None,
        found: kinds.Classes,
        z: Doubles,
    ) -> WorkloadProfile:
        before = self.known.get(name)
        online = Estimate("online", *(None if np.isnan(p).any() else p[:, 0] for p in (found.kind, found.family)))
        historic = self._historic(before, seen)
        estimates = [by_name(name, self.table), online]
        if historic is not None and seen.seen_s < SURE_AFTER_S:
            estimates.append(Estimate("historic", *(np.array(p) if p else None for p in historic)))
        owner = declared(spec, self.table) if spec is not None else None
        errors = self.errors.all()
        kind, family = combine([*([owner] if owner else []), *estimates], errors, self.table)
        known = self.known.pop(name, None)  # keep the order of last sight
        is_judged = known is not None and known.is_judged and seen.seen_s >= known.seen_s
        if owner is not None and seen.seen_s >= SURE_AFTER_S and not is_judged:
            self.errors.update(estimates, owner)
            is_judged = True
        strangeness = float(found.strangeness[0])
        now = self.known[name] = ProfileState(
            seen_ns=tick.end_ns,
            seen_s=seen.seen_s,
            devices=seen.devices,
            fingerprint=[round(v, 3) if isfinite(v) else None for v in z.tolist()],
            error=_drift(before, seen, z),
            kind=[] if online.kind is None else kind.tolist(),
            family=[] if online.family is None else family.tolist(),
            bound=[] if np.isnan(found.bound).any() else found.bound[:, 0].tolist(),
            family_known=not strangeness > 1.0,
            historic=historic,
            is_judged=is_judged,
        )
        while len(self.known) > MAX_PROFILES:
            oldest = next(iter(self.known))
            del self.known[oldest]
            self._compared.drop(oldest)
        similar = self._similar(name, now)
        self._update_prior(name, spec, similar)
        prior = self.starts.priors.get(name)
        return WorkloadProfile(
            id=record_id("WorkloadProfile", self.cell, name, tick.index),
            subject=name,
            cell=self.cell,
            time_ns=tick.end_ns,
            kinds=_shares(self.table.kinds, kind),
            families=_shares(self.table.families, family),
            bounds=_shares(self.table.bounds, np.array(now.bound)) if now.bound else {},
            opinions=tuple(
                opinion(s, errors, self.table) for s in [*([owner] if owner else []), *estimates] if _is_informative(s)
            ),
            strangeness=round(strangeness, 4) if isfinite(strangeness) else None,
            fingerprint=tuple(now.fingerprint),
            fingerprint_error=now.error,
            seen_s=seen.seen_s,
            devices=seen.devices,
            similar=tuple(Similar(workload=n, similarity=round(s, 4)) for n, s in similar[:SHOWN]),
            step_s=seen.step_s,
            cold_start_prior_s=prior,
        )

    def _historic(self, before: ProfileState | None, seen: Features) -> tuple[list[float], list[float]] | None:
        """Distributions of the workload before its current run."""
        if before is None:
            return None
        if seen.seen_s >= before.seen_s:
            return before.historic
        return (before.kind, before.family) if before.seen_s >= SURE_AFTER_S else before.historic

    def _similar(self, name: str, now: ProfileState) -> list[tuple[str, float]]:
        """Similar workloads and their similarity, the most similar first."""
        self._compare(name, now)
        return self._compared.similar(name, LEAST_SIMILARITY) if now.seen_s >= LEAST_SEEN_S else []

    def _compare(self, name: str, now: ProfileState) -> None:
        """Compare others with a workload once it has enough telemetry."""
        if now.seen_s >= LEAST_SEEN_S:
            self._compared.put(name, now.fingerprint)
        else:
            self._compared.drop(name)

    def _update_prior(self, name: str, spec: WorkloadSpec | None, similar: list[tuple[str, float]] | None) -> None:
        """Set the prior of a workload's cold start from similar ones, unless its owner gave a value."""
        self.starts.priors.pop(name, None)
        if spec is None or spec.cold_start_s != DEFAULT_COLD_START_S:
            return
        similar = self._similar_by_name(name, spec) if similar is None else similar
        shown = [(similarity, self.starts.samples.get(other)) for other, similarity in similar]
        known = [
            (similarity, p90([s for place in samples.values() for s in place], DEFAULT_COLD_START_S))
            for similarity, samples in shown
            if samples and sum(map(len, samples.values())) >= LEAST_STARTS
        ]
        weight = sum(similarity for similarity, _ in known)
        if weight >= LEAST_TOTAL_SIMILARITY:
            self.starts.priors[name] = sum(similarity * seconds for similarity, seconds in known) / weight

    def _similar_by_name(self, name: str, spec: WorkloadSpec) -> list[tuple[str, float]]:
        """Workloads of the declared kind and model family, for a workload without telemetry."""
        owner = [declared(spec, self.table), by_name(name, self.table)]
        if all(estimate.family is None for estimate in owner):
            return []
        kind, family = combine(owner, self.errors.all(), self.table)
        similar = [
            (other, SAME_NAME * float(np.dot(kind, known.kind) * np.dot(family, known.family)))
            for other, known in self.known.items()
            if other != name and known.kind and known.family and known.family_known
        ]
        return sorted((pair for pair in similar if pair[1] >= LEAST_SIMILARITY), key=lambda pair: (-pair[1], pair[0]))


def _drift(before: ProfileState | None, seen: Features, z: Doubles) -> float | None:
    """Change of the features from minute to minute, root mean square, in standard deviations."""
    if before is None or seen.seen_s < before.seen_s:
        return None
    deviation = z - np.array(before.fingerprint, np.float64)
    known = np.isfinite(deviation)
    if not known.any():
        return before.error
    drift = float(np.sqrt((deviation[known] ** 2).mean()))
    return round(drift if before.error is None else before.error + _MOVED * (drift - before.error), 4)


def _shares(names: tuple[str, ...], p: Doubles) -> dict[str, float]:
    """Probabilities of at least 1 %, the largest first."""
    order = sorted(range(len(names)), key=lambda i: (-p[i], i))
    return {names[i]: round(float(p[i]), 3) for i in order if p[i] >= 0.01}


def _is_informative(estimate: Estimate) -> bool:
    return estimate.kind is not None or estimate.family is not None
