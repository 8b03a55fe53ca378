"""Evidence for the kind and model family of a workload, combined over several methods.

Each method gives a distribution p over K kinds and one over model families. It is softened by the method's error e,

    q = (1 - e) p + e / K

and the combination is the normalized product of all q, as methods err independently. e starts at a prior error and is
estimated from the owners' declarations: it is the share of declared workloads whose kind the method got wrong, with the
prior counted as ``PRIOR_WEIGHT`` workloads.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from flyball_contracts.records import Opinion, WorkloadSpec
from flyball_models.profile.kinds import Table
from flyball_models.profile.names import meant

Doubles: TypeAlias = NDArray[np.float64]
MethodName = Literal["declared", "name", "historic", "online"]
PRIOR_ERRORS: dict[MethodName, float] = {"declared": 0.03, "name": 0.25, "historic": 0.15, "online": 0.05}
PRIOR_WEIGHT = 20.0
"""Number of workloads that the prior error of a method counts as."""
COMPATIBLE = {
    "training": ("training", "fine_tuning"),
    "inference": ("inference",),
    "batch": ("batch",),
    "notebook": ("interactive",),
}
"""Kinds that agree with each kind in a specification."""


class Estimate(NamedTuple):
    """Result of one method: distributions over kinds and model families, ``None`` if it has no evidence."""

    method: MethodName
    kind: Doubles | None
    family: Doubles | None


def declared(spec: WorkloadSpec, table: Table) -> Estimate:
    """Estimate from the owner's specification."""
    known = [i for i, kind in enumerate(table.kinds) if kind in COMPATIBLE[spec.kind]]
    kind = np.zeros(len(table.kinds))
    kind[known] = 1.0 / len(known)
    family = _one_hot(table.families, "transformer") if spec.model is not None else None
    return Estimate("declared", kind, family)


@lru_cache(maxsize=1 << 14)
def by_name(workload: str, table: Table) -> Estimate:
    """Estimate from the workload's name; its arrays are shared and must not be changed."""
    kind, family = meant(workload)
    return Estimate("name", _one_hot(table.kinds, kind), _one_hot(table.families, family))


def combine(estimates: Sequence[Estimate], errors: dict[str, float], table: Table) -> tuple[Doubles, Doubles]:
    """Combined distributions over kinds and model families."""
    kind, family = np.zeros(len(table.kinds)), np.zeros(len(table.families))
    for estimate in estimates:
        error = errors[estimate.method]
        if estimate.kind is not None:
            kind += np.log((1.0 - error) * estimate.kind + error / len(kind))
        if estimate.family is not None:
            family += np.log((1.0 - error) * estimate.family + error / len(family))
    return _normalized(kind), _normalized(family)


def opinion(estimate: Estimate, errors: dict[str, float], table: Table) -> Opinion:
    """The published record of an estimate: its most probable kind and model family."""
    return Opinion(
        method=estimate.method,
        kind="" if estimate.kind is None else table.kinds[int(estimate.kind.argmax())],
        family="" if estimate.family is None else table.families[int(estimate.family.argmax())],
        error=round(errors[estimate.method], 4),
    )


class Errors:
    """Error of each method against owners' declarations; ``counts`` are the wrong and all compared estimates."""

    def __init__(self) -> None:
        self.counts: dict[str, list[float]] = {method: [0.0, 0.0] for method in PRIOR_ERRORS}

    def update(self, estimates: Sequence[Estimate], truth: Estimate) -> None:
        """Compare estimates with the declaration."""
        if truth.kind is None:
            return
        for estimate in estimates:
            if estimate.method != "declared" and estimate.kind is not None:
                counts = self.counts[estimate.method]
                counts[0] += float(truth.kind[int(estimate.kind.argmax())] == 0.0)
                counts[1] += 1.0

    def all(self) -> dict[str, float]:
        """Error of each method."""
        return {
            method: (wrong + PRIOR_WEIGHT * PRIOR_ERRORS[method]) / (is_judged + PRIOR_WEIGHT)
            for method, (wrong, is_judged) in self.counts.items()
            if method in PRIOR_ERRORS
        }


def _one_hot(names: tuple[str, ...], name: str) -> Doubles | None:
    if name not in names:
        return None
    found = np.zeros(len(names))
    found[names.index(name)] = 1.0
    return found


def _normalized(log: Doubles) -> Doubles:
    p = np.exp(log - log.max())
    return np.asarray(p / p.sum(), np.float64)
