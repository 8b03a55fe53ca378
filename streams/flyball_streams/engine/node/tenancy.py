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

    def at(self, i: int) -> float | None:
        """Sum of one workload, ``None`` where nobody knew."""
        return float(self.total[i]) if self.known[i] else None


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
        utilization = self._sum(values[:, UTILIZATION], held)
        power = self._sum(values[:, POWER], held)
        owners = self.workload_of_allocation
        sums = {c: self._sum(self.values[:, c], owners) for c in SUMMED}
        demands: list[Demand] = []
        for i, workload in enumerate(self.workloads):
            progress, ready, latency = sums[PROGRESS], sums[READY], sums[LATENCY]
            known = bool(ready.known[i])
            demands.append(
                Demand(
                    workload=workload,
                    replicas=self.replicas[i],
                    ready=round(min(max(float(ready.total[i]), 0.0), self.replicas[i])) if known else self.replicas[i],
                    devices=int(self.devices[i]),
                    work_rate=sums[WORK].at(i),
                    request_rate=sums[REQUESTS].at(i),
                    queued=sums[QUEUED].at(i),
                    active=sums[ACTIVE].at(i),
                    utilization_sum=utilization.at(i),
                    power_w=power.at(i),
                    progress=float(progress.total[i] / progress.known[i]) if progress.known[i] else None,
                    usage=usage[i] if usage else None,
                    tokens_in_rate=sums[TOKENS_IN].at(i),
                    tokens_out_rate=sums[TOKENS_OUT].at(i),
                    failed=sums[FAILED].at(i),
                    latency_s=float(latency.total[i] / latency.known[i]) if latency.known[i] else None,
                )
            )
        return demands

    def _sum(self, x: NDArray[np.float32], owner: NDArray[np.int32]) -> Sums:
        known = np.isfinite(x) & (owner >= 0)
        n = len(self.workloads)
        total = np.bincount(owner[known], x[known].astype(np.float64), n).astype(np.float64)
        return Sums(total, np.bincount(owner[known], minlength=n))
