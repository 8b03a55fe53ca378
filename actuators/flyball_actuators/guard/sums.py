"""Sums over what the inventories show, so that no check of a decision has to walk all nodes."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

_FREE: frozenset[str | None] = frozenset({None})
_NONE: Mapping[str, None] = {}


Declared = tuple[str, float]
"""What a specification declares: the tenant, empty if there is none, and the GPUs that a replica requests.

A plain tuple: it is unpacked for hundreds of grants in a judgement, and a named one takes twice as long.
"""
UNDECLARED: Declared = ("", 1.0)
DeclaredByName = Mapping[str, Declared]
"""Declarations by workload; a workload that is missing is ``UNDECLARED``."""


class Gpu(NamedTuple):
    """A GPU that MIG does not divide: the workloads of the replicas on it, and whether it is ``shared``.

    It is shared if the platform says so, or has placed several replicas on it. Processes that no platform placed do
    not count.
    """

    workloads: tuple[str, ...]
    shared: bool


class Spot(NamedTuple):
    """GPUs on which a replica may be placed beside the work of a ``tenant``; ``None`` for free GPUs.

    Unless the GPUs are ``shared``, only a replica that requests part of a GPU may be placed there.
    """

    shared: bool
    tenant: str | None


class Sums(NamedTuple):
    """``held[cell][tenant]``: replicas and GPUs; ``spots[cell][spot]``: the nodes in use that have such a GPU.

    ``declared[workload]``: tenant and GPUs of a replica.
    """

    held: Mapping[str, Mapping[str, tuple[int, float]]] = {}
    spots: Mapping[str, Mapping[Spot, Mapping[str, None]]] = {}
    declared: Mapping[str, Declared] = {}

    def of(self, workload: str) -> Declared:
        """Tenant of a workload and GPUs of a replica."""
        return self.declared.get(workload, UNDECLARED)

    def tenant(self, workload: str) -> str:
        """Tenant of a workload, empty if it has none."""
        return self.of(workload)[0]

    def gpus(self, workload: str) -> float:
        """GPUs that a replica of a workload requests."""
        return self.of(workload)[1]

    def declaring(self, workload: str, now: Declared) -> "Sums":
        """The sums with a workload as it is declared now."""
        declared = {**self.declared, workload: now}
        if now == UNDECLARED:
            del declared[workload]
        return self._replace(declared=declared)

    def holding(self, cell: str, declared: Declared, replicas: int) -> "Sums":
        """The sums with ``replicas`` more (fewer if negative) of a workload that is ``declared`` so."""
        of_cell, (tenant, gpus) = self.held.get(cell, {}), declared
        had, used = of_cell.get(tenant, (0, 0.0))
        held = {**of_cell, tenant: (had + replicas, used + replicas * gpus)}
        return self._replace(held={**self.held, cell: held})

    def offering(self, cell: str, node: str, before: Iterable[Spot], after: Iterable[Spot]) -> "Sums":
        """The sums with the spots ``after`` instead of ``before`` on a node."""
        was, now = frozenset(before), frozenset(after)
        if was == now:
            return self
        spots = {**self.spots.get(cell, {})}
        for spot in was - now:
            spots[spot] = {name: None for name in spots[spot] if name != node}
            if not spots[spot]:
                del spots[spot]
        for spot in sorted(now - was, key=lambda one: (one.shared, one.tenant or "")):
            spots[spot] = {**spots.get(spot, _NONE), node: None}
        return self._replace(spots={**self.spots, cell: spots})


def may_come(gpu: Gpu, takes_part: bool, declared: DeclaredByName) -> bool:
    """Whether the platform may put a replica, of a whole GPU or of a part, on a GPU beside the replicas on it."""
    if gpu.shared or not takes_part:
        return gpu.shared
    return len(gpu.workloads) != 1 or not declared.get(gpu.workloads[0], UNDECLARED)[1].is_integer()


def spots_of(gpus: Iterable[Gpu], declared: DeclaredByName) -> frozenset[Spot]:
    """Spots on the GPUs of a node."""
    return frozenset(
        Spot(gpu.shared, tenant)
        for gpu in gpus
        if may_come(gpu, takes_part=True, declared=declared)
        for tenant in {declared.get(name, UNDECLARED)[0] for name in gpu.workloads} or _FREE
    )
