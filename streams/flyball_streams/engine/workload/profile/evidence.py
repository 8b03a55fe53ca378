"""Opinions on what a workload is, and their mix.

Each method gives a distribution over kinds and one over families. It is softened by the method's error e,

    q = (1 - e) p + e / K

and the mix is the normalised product of all q: methods are taken to err independently. e starts at what is believed of
the method and is learned from the owners' declarations: it is the part of the judged workloads whose kind it got wrong,
with the belief counted as so many judgements.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from flyball_contracts.records import Opinion, WorkloadSpec
from flyball_models.profile.kinds import Table
from flyball_models.profile.names import meant

Doubles: TypeAlias = NDArray[np.float64]
MethodName = Literal["declared", "name", "historic", "online"]
BELIEVED: dict[MethodName, float] = {"declared": 0.03, "name": 0.25, "historic": 0.15, "online": 0.05}
BELIEF = 20.0
"""Judgements that the belief in a method counts as."""
COMPATIBLE = {
    "training": ("training", "fine_tuning"),
    "inference": ("inference",),
    "batch": ("batch",),
    "notebook": ("interactive",),
}
"""Kinds that an owner may mean by each word of the specification."""


class Estimate(NamedTuple):
    """What one method says: distributions over kinds and families, ``None`` where it is silent on one of them."""

    method: MethodName
    kind: Doubles | None
    family: Doubles | None


def declared(spec: WorkloadSpec, table: Table) -> Estimate:
    """What the owner says."""
    known = [i for i, kind in enumerate(table.kinds) if kind in COMPATIBLE[spec.kind]]
    kind = np.zeros(len(table.kinds))
    kind[known] = 1.0 / len(known)
    family = _certain(table.families, "transformer") if spec.model is not None else None
    return Estimate("declared", kind, family)


def by_name(workload: str, table: Table) -> Estimate:
    """What the name speaks for."""
    kind, family = meant(workload)
    return Estimate("name", _certain(table.kinds, kind), _certain(table.families, family))


def mixed(estimates: Sequence[Estimate], errors: dict[str, float], table: Table) -> tuple[Doubles, Doubles]:
    """Distributions over kinds and families of all that was said."""
    kind, family = np.zeros(len(table.kinds)), np.zeros(len(table.families))
    for estimate in estimates:
        error = errors[estimate.method]
        if estimate.kind is not None:
            kind += np.log((1.0 - error) * estimate.kind + error / len(kind))
        if estimate.family is not None:
            family += np.log((1.0 - error) * estimate.family + error / len(family))
    return _normal(kind), _normal(family)


def opinion(estimate: Estimate, errors: dict[str, float], table: Table) -> Opinion:
    """What a method says, in a word."""
    return Opinion(
        method=estimate.method,
        kind="" if estimate.kind is None else table.kinds[int(estimate.kind.argmax())],
        family="" if estimate.family is None else table.families[int(estimate.family.argmax())],
        error=round(errors[estimate.method], 4),
    )


class Errors:
    """How often each method was wrong about the kind, by what owners declare; ``counts`` are wrong and judged."""

    def __init__(self) -> None:
        self.counts: dict[str, list[float]] = {method: [0.0, 0.0] for method in BELIEVED}

    def judge(self, estimates: Sequence[Estimate], truth: Estimate) -> None:
        """Count what was said against the declaration."""
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
            method: (wrong + BELIEF * BELIEVED[method]) / (judged + BELIEF)
            for method, (wrong, judged) in self.counts.items()
            if method in BELIEVED
        }


def _certain(names: tuple[str, ...], name: str) -> Doubles | None:
    if name not in names:
        return None
    found = np.zeros(len(names))
    found[names.index(name)] = 1.0
    return found


def _normal(log: Doubles) -> Doubles:
    p = np.exp(log - log.max())
    return np.asarray(p / p.sum(), np.float64)
