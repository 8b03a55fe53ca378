"""Sums over what the inventories show, so that no decision walks all nodes."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

_FREE: frozenset[str | None] = frozenset({None})
_NONE: Mapping[str, None] = {}


Owner = tuple[str, float]
"""Tenant of a workload, empty if it has none, and the GPUs that a replica of it requests."""
UNDECLARED: Owner = ("", 1.0)
Owners = Mapping[str, Owner]
"""By workload; one that is missing is ``UNDECLARED``."""


class Gpu(NamedTuple):
    """A GPU that MIG does not divide: the workloads of the replicas on it, and whether it is ``shared``.

    It is, if the platform says so or has put several replicas on it. What no platform placed does not count.
    """

    workloads: tuple[str, ...]
    shared: bool


class Spot(NamedTuple):
    """GPUs to which a replica may come beside a ``tenant``, ``None`` if the GPU is free.

    Only one that requests a part of a GPU may, where the GPU is not ``shared``.
    """

    shared: bool
    tenant: str | None


class Sums(NamedTuple):
    """``held[cell][tenant]``: replicas and GPUs; ``spots[cell][spot]``: the nodes in use that have such a GPU."""

    held: Mapping[str, Mapping[str, tuple[int, float]]] = {}
    spots: Mapping[str, Mapping[Spot, Mapping[str, None]]] = {}
    owners: Mapping[str, Owner] = {}

    def of(self, workload: str) -> Owner:
        """Tenant and GPUs of a workload."""
        return self.owners.get(workload, UNDECLARED)

    def gpus(self, workload: str) -> float:
        """GPUs that a replica of a workload requests."""
        return self.of(workload)[1]

    def owned(self, workload: str, owner: Owner) -> "Sums":
        """With another owner of a workload."""
        if self.of(workload) == owner:
            return self
        owners = {name: of for name, of in self.owners.items() if name != workload}
        return self._replace(owners=owners if owner == UNDECLARED else {**owners, workload: owner})

    def holding(self, cell: str, owner: Owner, replicas: int) -> "Sums":
        """With that many replicas more (or fewer, below 0) of a workload with that owner."""
        of_cell, (tenant, gpus) = self.held.get(cell, {}), owner
        had, used = of_cell.get(tenant, (0, 0.0))
        held = {**of_cell, tenant: (had + replicas, used + replicas * gpus)}
        return self._replace(held={**self.held, cell: held})

    def offering(self, cell: str, node: str, before: Iterable[Spot], after: Iterable[Spot]) -> "Sums":
        """With other spots on a node."""
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


def may_come(gpu: Gpu, takes_part: bool, owners: Owners) -> bool:
    """Whether the platform may put a replica, of a whole GPU or of a part, on a GPU, beside those that are on it."""
    if gpu.shared or not takes_part:
        return gpu.shared
    return len(gpu.workloads) != 1 or not owners.get(gpu.workloads[0], UNDECLARED)[1].is_integer()


def spots_of(gpus: Iterable[Gpu], owners: Owners) -> frozenset[Spot]:
    """Spots on the GPUs of a node."""
    return frozenset(
        Spot(gpu.shared, tenant)
        for gpu in gpus
        if may_come(gpu, takes_part=True, owners=owners)
        for tenant in {owners.get(name, UNDECLARED)[0] for name in gpu.workloads} or _FREE
    )
