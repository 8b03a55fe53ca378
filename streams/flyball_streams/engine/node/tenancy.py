"""Who holds which device, as index arrays, and the sums per workload."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flyball_contracts.metrics import GPU, WORKLOAD
from flyball_contracts.records import Demand, Inventory, Usage

UTILIZATION = GPU.column("hw.gpu.utilization{task=general}")
POWER = GPU.column("hw.power")
REQUESTS = WORKLOAD.column("flyball.workload.request.rate")
WORK = WORKLOAD.column("flyball.workload.work.rate")
ACTIVE = WORKLOAD.column("flyball.workload.request.active")
QUEUED = WORKLOAD.column("flyball.workload.request.queued")
PROGRESS = WORKLOAD.column("flyball.workload.progress")
READY = WORKLOAD.column("flyball.workload.ready")
TOKENS_IN = WORKLOAD.column("flyball.workload.token.rate{kind=input}")
TOKENS_OUT = WORKLOAD.column("flyball.workload.token.rate{kind=output}")
LATENCY = WORKLOAD.column("flyball.workload.latency{stat=mean}")
FAILED = WORKLOAD.column("flyball.workload.errors")
SUMMED = (REQUESTS, WORK, ACTIVE, QUEUED, PROGRESS, READY, TOKENS_IN, TOKENS_OUT, LATENCY, FAILED)


class Sums(NamedTuple):
    """Sum and number of known values for each workload; both ``[workloads]``."""

    total: NDArray[np.float64]
    known: NDArray[np.int64]

    def values(self) -> list[float | None]:
        """Sum of each workload, ``None`` where nobody knew."""
        return [x if n else None for x, n in zip(self.total.tolist(), self.known.tolist(), strict=True)]

    def means(self) -> list[float | None]:
        """Mean over those that knew."""
        return [x / n if n else None for x, n in zip(self.total.tolist(), self.known.tolist(), strict=True)]


class Tenancy:
    """The allocations of one cell on this partition's nodes, rebuilt when an inventory changes.

    ``workload_of_slot[slot]`` and ``workload_of_allocation[row]`` are indexes into ``workloads``, -1 for none.
    """

    def __init__(self, inventories: dict[str, Inventory], slots: dict[str, int], capacity: int) -> None:
        self.workloads = sorted({a.workload for i in inventories.values() for a in i.allocations})
        index = {name: i for i, name in enumerate(self.workloads)}
        self.first_row: dict[str, int] = {}
        self.replica_of_slot: dict[int, tuple[str, str]] = {}
        self.workload_of_slot = np.full(capacity, -1, np.int32)
        owners: list[int] = []
        replicas: dict[str, set[str]] = {name: set() for name in self.workloads}
        for node, inventory in sorted(inventories.items()):
            self.first_row[node] = len(owners)
            for a in inventory.allocations:
                owners.append(index[a.workload])
                replicas[a.workload].add(a.replica)
                for row in a.devices:
                    if 0 <= row < len(inventory.devices):
                        slot = slots[inventory.devices[row].id]
                        self.workload_of_slot[slot] = index[a.workload]
                        self.replica_of_slot[slot] = (a.workload, a.replica)
        self.workload_of_allocation = np.array(owners, np.int32)
        self.replicas = [len(replicas[name]) for name in self.workloads]
        self.devices = np.bincount(self.workload_of_slot[self.workload_of_slot >= 0], minlength=len(self.workloads))
        self.values = np.full((len(owners), len(WORKLOAD)), np.nan, np.float32)

    def demands(
        self, values: NDArray[np.float32], mask: NDArray[np.bool_], usage: Sequence[Usage | None] = ()
    ) -> list[Demand]:
        """Demand of each workload, from the device values ``float32[capacity, metrics]`` and the workload rows."""
        held = np.where(mask, self.workload_of_slot, -1)
        owners = self.workload_of_allocation
        sums = {c: self._sum(self.values[:, c], owners) for c in SUMMED}
        ready = [
            have if n is None else round(min(max(n, 0.0), have))
            for n, have in zip(sums[READY].values(), self.replicas, strict=True)
        ]
        devices: list[int] = self.devices.tolist()
        work, requests, queued, active = (sums[c].values() for c in (WORK, REQUESTS, QUEUED, ACTIVE))
        tokens_in, tokens_out, failed = (sums[c].values() for c in (TOKENS_IN, TOKENS_OUT, FAILED))
        progress, latency = sums[PROGRESS].means(), sums[LATENCY].means()
        utilization = self._sum(values[:, UTILIZATION], held).values()
        power = self._sum(values[:, POWER], held).values()
        return [
            Demand(
                workload=workload,
                replicas=self.replicas[i],
                ready=ready[i],
                devices=devices[i],
                work_rate=work[i],
                request_rate=requests[i],
                queued=queued[i],
                active=active[i],
                utilization_sum=utilization[i],
                power_w=power[i],
                progress=progress[i],
                tokens_in_rate=tokens_in[i],
                tokens_out_rate=tokens_out[i],
                failed=failed[i],
                latency_s=latency[i],
                usage=usage[i] if usage else None,
            )
            for i, workload in enumerate(self.workloads)
        ]

    def _sum(self, x: NDArray[np.float32], owner: NDArray[np.int32]) -> Sums:
        known = np.isfinite(x) & (owner >= 0)
        n = len(self.workloads)
        total = np.bincount(owner[known], x[known].astype(np.float64), n).astype(np.float64)
        return Sums(total, np.bincount(owner[known], minlength=n))
