"""Which nodes a workload must not come to, because another tenant is on an undivided GPU there.

It is the guard's rule (``tenant_mixed``), so that nothing is proposed that the guard refuses. The platform may put a
workload that requests a part of a GPU beside any other that does, or on any GPU that several replicas share. It may put
one that requests whole GPUs only on a GPU that it shares, or on which it has placed several replicas; if a decision
names the node, also on a GPU there that several replicas share for any other reason. An undeclared workload on a shared
GPU is another tenant's. MIG keeps tenants apart.
"""

from typing import NamedTuple

from flyball_contracts.records import Inventory, WorkloadSpec
from flyball_streams.engine.fleet_index import FleetIndex


class _Shared(NamedTuple):
    """Workloads and tenants on undivided GPUs of a node.

    ``several`` are on a GPU that is shared or holds several replicas, ``placed`` those among them on a GPU that the
    platform shares or on which it has placed several replicas, and ``parts`` those that have a GPU to themselves and
    requested a part of one.
    """

    several: frozenset[tuple[str, str]]
    placed: frozenset[tuple[str, str]]
    parts: frozenset[tuple[str, str]]
    schedulable: bool


class Tenancy:
    """Tenants on the shared GPUs of a cell, by its inventories."""

    def __init__(self, directory: FleetIndex, cell: str) -> None:
        self._directory = directory
        self._cell = cell
        self._version = -1
        self._shared: dict[str, _Shared] = {}

    def closed(self, spec: WorkloadSpec) -> frozenset[str]:
        """Nodes that a replica must not be sent to by name."""
        return frozenset(name for name, shared in self._by_node().items() if _is_mixed(spec, shared, shared.several))

    def bars(self, spec: WorkloadSpec) -> bool:
        """Whether no replica may be added, because the platform may put it beside another tenant's."""
        return any(shared.schedulable and _is_mixed(spec, shared, shared.placed) for shared in self._by_node().values())

    def _by_node(self) -> dict[str, _Shared]:
        if self._version != self._directory.version:
            self._version = self._directory.version
            found = ((node.node, self._of(node)) for node in self._directory.nodes(self._cell) if node.allocations)
            self._shared = {name: shared for name, shared in found if shared.several or shared.parts}
        return self._shared

    def _of(self, node: Inventory) -> _Shared:
        on: dict[int, list[str]] = {}
        put: dict[int, int] = {}
        for part in node.allocations:
            for row in set(part.devices):
                on.setdefault(row, []).append(part.workload)
                put[row] = put.get(row, 0) + part.placed
        several, placed, parts = set[tuple[str, str]](), set[tuple[str, str]](), set[tuple[str, str]]()
        for row, workloads in on.items():
            device = node.devices[row] if 0 <= row < len(node.devices) else None
            if device is None or device.parent is not None or device.mig_profile is not None or device.mig_enabled:
                continue
            specs = {name: self._directory.spec(name) for name in workloads}
            named = {(name, "" if spec is None else spec.tenant) for name, spec in specs.items()}
            if len(workloads) > 1 or device.shared:
                several |= named
                placed |= named if put[row] > 1 or device.shared else set()
            elif any(spec is not None and asks_for_part(spec) for spec in specs.values()):
                parts |= named
        return _Shared(frozenset(several), frozenset(placed), frozenset(parts), node.schedulable)


def asks_for_part(spec: WorkloadSpec) -> bool:
    """Whether a replica requests a part of a GPU."""
    return not float(spec.gpus_per_replica).is_integer()


def _is_mixed(spec: WorkloadSpec, shared: _Shared, beside: frozenset[tuple[str, str]]) -> bool:
    """Whether a replica may be placed beside another tenant's; one with whole GPUs may be placed ``beside`` these."""
    if asks_for_part(spec):
        beside = shared.several | shared.parts
    return spec.gpus_per_replica > 0 and any(
        workload != spec.workload and tenant != spec.tenant for workload, tenant in beside
    )
