"""Sums over what the inventories show, so that no decision walks all nodes."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from flyball_contracts.records import WorkloadSpec

_FREE: frozenset[str | None] = frozenset({None})
_NONE: Mapping[str, None] = {}


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

    def holding(self, cell: str, tenant: str, replicas: int, gpus_per_replica: float) -> "Sums":
        """With that many replicas more (or fewer, below 0) of a tenant."""
        of_cell = self.held.get(cell, {})
        had, used = of_cell.get(tenant, (0, 0.0))
        held = {**of_cell, tenant: (had + replicas, used + replicas * gpus_per_replica)}
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


def tenant_of(workload: str, specs: Mapping[str, WorkloadSpec]) -> str:
    """Tenant of a workload, empty if it is not declared."""
    spec = specs.get(workload)
    return "" if spec is None else spec.tenant


def gpus_of(workload: str, specs: Mapping[str, WorkloadSpec]) -> float:
    """GPUs that a replica requests; one, if its workload is not declared."""
    spec = specs.get(workload)
    return 1.0 if spec is None else float(spec.gpus_per_replica)


def may_come(gpu: Gpu, takes_part: bool, specs: Mapping[str, WorkloadSpec]) -> bool:
    """Whether the platform may put a replica, of a whole GPU or of a part, on a GPU, beside those that are on it."""
    if gpu.shared or not takes_part:
        return gpu.shared
    return len(gpu.workloads) != 1 or not gpus_of(gpu.workloads[0], specs).is_integer()


def spots_of(gpus: Iterable[Gpu], specs: Mapping[str, WorkloadSpec]) -> frozenset[Spot]:
    """Spots on the GPUs of a node."""
    return frozenset(
        Spot(gpu.shared, tenant)
        for gpu in gpus
        if may_come(gpu, takes_part=True, specs=specs)
        for tenant in {tenant_of(name, specs) for name in gpu.workloads} or _FREE
    )
