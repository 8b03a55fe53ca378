"""Usage of GPUs, CPU and memory by replicas: once a minute, the maximum over the replicas of a workload."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flyball_contracts.ids import NS_PER_S
from flyball_contracts.metrics import GPU, USAGE
from flyball_contracts.records import Tick, Usage
from flyball_streams.engine.node.tenancy import UTILIZATION, Tenancy
from flyball_streams.engine.node.window import AT_ONCE

REPORT_NS = 60 * NS_PER_S
GPU_MEMORY = GPU.column("hw.gpu.memory.usage")
SM_ACTIVITY = GPU.column("nvidia.gpu.sm.activity")
MEASURED = np.array([SM_ACTIVITY, UTILIZATION, GPU_MEMORY])
CPU_TIME = USAGE.column("container.cpu.time")
LARGEST = [
    USAGE.column(f"container.{name}") for name in ("cpu.time", "cpu.limit", "memory.working_set", "memory.limit")
]
OOM = USAGE.column("container.memory.oom")


def is_due(tick: Tick) -> bool:
    """Whether a tick is the first to end in a new minute."""
    return tick.end_ns // REPORT_NS != (tick.end_ns - tick.period_ns) // REPORT_NS


class UsageMeter:
    """Usage since the last report, by device slot and by workload.

    A GPU's share is its SM activity or, if unknown, its utilization (time with a kernel running), which is higher.
    """

    def __init__(self, capacity: int) -> None:
        self.holders: dict[int, tuple[str, str]] = {}
        self.workloads: list[str] = []
        self.memory = np.full(capacity, np.nan, np.float32)
        self.share = np.zeros(capacity, np.float32)
        self.known = np.zeros(capacity, np.int32)
        self.largest = np.zeros((0, len(LARGEST)), np.float32)
        self.oom = np.zeros(0, np.float32)
        self._kept: list[NDArray[np.float32]] = []

    def follow(self, tenancy: Tenancy) -> None:
        """Clear slots that another replica holds now, and reorder the workloads."""
        self._add_kept()
        more = len(tenancy.workload_of_slot) - len(self.share)
        if more:
            self.memory = np.pad(self.memory, (0, more), constant_values=np.nan)
            self.share, self.known = np.pad(self.share, (0, more)), np.pad(self.known, (0, more))
        new, old = tenancy.replica_of_slot, self.holders
        moved = [slot for slot in new.keys() | old.keys() if new.get(slot) != old.get(slot)]
        self.memory[moved], self.share[moved], self.known[moved] = np.nan, 0, 0
        place = {name: i for i, name in enumerate(self.workloads)}
        places = np.array([place.get(name, -1) for name in tenancy.workloads], np.int64)
        largest = np.vstack([self.largest, np.full(len(LARGEST), np.nan, np.float32)])
        self.largest, self.oom = largest[places], np.append(self.oom, np.float32(np.nan))[places]
        self.holders, self.workloads = new, tenancy.workloads

    def note(self, values: NDArray[np.float32]) -> None:
        """Add this tick's device values, ``float32[capacity, metrics]``, NaN where missing."""
        self._kept.append(values.take(MEASURED, axis=1))
        if len(self._kept) == AT_ONCE:
            self._add_kept()

    def note_replicas(self, owners: NDArray[np.int32], values: NDArray[np.float32], period_s: float) -> None:
        """Add host usage of replicas, ``float32[rows, metrics]``, counters over a period.

        ``owners`` are the indexes of the rows' workloads.
        """
        used = values[:, LARGEST]
        used[:, LARGEST.index(CPU_TIME)] /= period_s
        np.fmax.at(self.largest, owners, np.where(np.isfinite(used), used, np.float32(np.nan)))
        killed = np.isfinite(values[:, OOM])
        if killed.any():
            oom_rows = owners[killed]
            self.oom[oom_rows] = np.where(np.isfinite(self.oom[oom_rows]), self.oom[oom_rows], np.float32(0.0))
            np.add.at(self.oom, oom_rows, values[killed, OOM])

    def drain(self, tenancy: Tenancy) -> list[Usage | None]:
        """Return the usage of each of :attr:`Tenancy.workloads`, ``None`` if unknown, and start a new period."""
        self._add_kept()
        n = len(self.workloads)
        devices = np.full((n, 2), np.nan, np.float32)
        held = np.flatnonzero(tenancy.workload_of_slot >= 0)
        seen = self.known[held] > 0
        share = np.where(seen, self.share[held] / np.maximum(self.known[held], 1), np.float32(np.nan))
        np.fmax.at(devices, tenancy.workload_of_slot[held], np.column_stack([share, self.memory[held]]))
        rows = np.column_stack([self.largest, devices, self.oom]).astype(np.float64).tolist()
        self.memory.fill(np.nan)
        self.share.fill(0)
        self.known.fill(0)
        self.largest.fill(np.nan)
        self.oom.fill(np.nan)
        return [_usage([None if x != x else x for x in row]) for row in rows]

    def state(self) -> dict[str, Any]:
        """State for a snapshot."""
        self._add_kept()
        return {
            "slots": [self.memory, self.share, self.known],
            "workloads": [self.workloads, self.largest, self.oom],
        }

    def load(self, state: dict[str, Any], tenancy: Tenancy) -> None:
        """Replace the state by that of a snapshot made under this tenancy."""
        self.memory, self.share, self.known = state["slots"]
        self.workloads, self.largest, self.oom = state["workloads"]
        self.holders = tenancy.replica_of_slot
        self._kept = []

    def _add_kept(self) -> None:
        """Add the kept ticks together, as in :class:`~flyball_streams.engine.node.window.Window`."""
        if not self._kept:
            return
        kept: NDArray[np.float32] = np.array(self._kept)
        activity, utilization, memory = (kept[:, :, column] for column in range(len(MEASURED)))
        share = np.where(np.isfinite(activity), activity, utilization)
        known = np.isfinite(share)
        for one in np.where(known, share, np.float32(0.0)):
            self.share += one
        self.known += known.sum(axis=0, dtype=np.int32)
        most = np.fmax.reduce(np.where(np.isfinite(memory), memory, np.float32(np.nan)), axis=0)
        np.fmax(self.memory, most, out=self.memory)
        self._kept.clear()


def _usage(row: list[float | None]) -> Usage | None:
    if all(x is None for x in row):
        return None
    cpu, cpu_limit, memory, memory_limit, share, gpu_memory, oom = row
    return Usage(
        cpu=cpu,
        cpu_limit=cpu_limit,
        memory_bytes=memory,
        memory_limit_bytes=memory_limit,
        gpu_share=share,
        gpu_memory_bytes=gpu_memory,
        oom=oom,
    )
