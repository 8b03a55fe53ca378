"""Which workload holds which device, as index arrays, and sums by workload."""

from collections.abc import Sequence
from itertools import repeat
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flyball_contracts.metrics import GPU, WORKLOAD
from flyball_contracts.records import Demand, Inventory, Usage
from flyball_streams.engine.rows import rows

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
STEP = WORKLOAD.column("flyball.workload.step.time")
SUMMED = (REQUESTS, WORK, ACTIVE, QUEUED, READY, TOKENS_IN, TOKENS_OUT, FAILED, PROGRESS, LATENCY, STEP)
AVERAGED = [SUMMED.index(PROGRESS), SUMMED.index(LATENCY), SUMMED.index(STEP)]
_SUMMED, _MEASURED = np.array(SUMMED), np.array((UTILIZATION, POWER))
COLUMNS = len(_SUMMED) + len(_MEASURED)


class Known(NamedTuple):
    """Which values of a tick are known, as ``pattern``, and what follows from it.

    ``places`` are the positions of the known values, and ``bins`` the sums that they belong to. ``divisors``
    ``[columns, workloads]`` are the numbers of known values of the averaged sums, at least 1, and 1 for the other sums.
    ``empty`` are the columns without a known value, ``none`` column and workload of the other sums without one.
    """

    pattern: bytes
    places: NDArray[np.int64]
    bins: NDArray[np.int64]
    divisors: NDArray[np.int64]
    empty: list[int]
    none: list[list[int]]


class Tenancy:
    """The allocations of one cell on this partition's nodes, rebuilt when an inventory changes.

    ``workload_of_slot[slot]`` and ``workload_of_allocation[row]`` are indexes into ``workloads``, -1 for none.
    ``places`` are the node and replica of each allocation row, ``model_of_allocation`` the model of its first device,
    -1 for none. ``peer_group[slot]`` int32 numbers groups of slots with the same model and workload (or none); -1
    beyond the capacity. ``model_of_slot`` and ``model_of_allocation`` are indexes into ``models``. ``gpus`` is the
    number of devices.
    """

    def __init__(self, inventories: dict[str, Inventory], slots: dict[str, int], capacity: int) -> None:
        self.workloads = sorted({a.workload for i in inventories.values() for a in i.allocations})
        index = {name: i for i, name in enumerate(self.workloads)}
        self.gpus = sum(len(inventory.devices) for inventory in inventories.values())
        self.first_row: dict[str, int] = {}
        self.workloads_of_node = {node: {a.workload for a in i.allocations} for node, i in inventories.items()}
        self.replica_of_slot: dict[int, tuple[str, str]] = {}
        self.workload_of_slot = np.full(capacity, -1, np.int32)
        model_of_slot = np.zeros(capacity, np.int32)
        models: dict[str, int] = {}
        owners: list[int] = []
        model_of_allocation: list[int] = []
        self.places: list[tuple[str, str]] = []
        replicas: dict[str, set[str]] = {name: set() for name in self.workloads}
        for node, inventory in sorted(inventories.items()):
            self.first_row[node] = len(owners)
            for device in inventory.devices:
                model_of_slot[slots[device.id]] = models.setdefault(device.model, len(models))
            for a in inventory.allocations:
                owners.append(index[a.workload])
                replicas[a.workload].add(a.replica)
                rows_held = [row for row in a.devices if 0 <= row < len(inventory.devices)]
                model_of_allocation.append(models[inventory.devices[rows_held[0]].model] if rows_held else -1)
                self.places.append((node, a.replica))
                for row in rows_held:
                    slot = slots[inventory.devices[row].id]
                    self.workload_of_slot[slot] = index[a.workload]
                    self.replica_of_slot[slot] = (a.workload, a.replica)
        self.models, self.model_of_slot = list(models), model_of_slot
        self.workload_of_allocation = np.array(owners, np.int32)
        self.model_of_allocation = np.array(model_of_allocation, np.int32)
        self.replicas = [len(replicas[name]) for name in self.workloads]
        devices = np.bincount(self.workload_of_slot[self.workload_of_slot >= 0], minlength=len(self.workloads))
        self.devices: list[int] = devices.tolist()
        self.values = np.full((len(owners), len(WORKLOAD)), np.nan, np.float32)
        held = np.flatnonzero(self.workload_of_slot >= 0)
        first = np.arange(COLUMNS) * len(self.workloads)
        pages = self.workload_of_allocation[:, None] + first[: len(SUMMED)]
        measured = self.workload_of_slot[held, None] + first[len(SUMMED) :]
        self._pages = (np.arange(len(owners))[:, None] * len(WORKLOAD) + _SUMMED).ravel()
        self._held = (held[:, None] * len(GPU) + _MEASURED).ravel()
        self._bins = np.concatenate([pages.ravel(), measured.ravel()])
        self._known: Known | None = None
        group = self.workload_of_slot * np.int32(max(1, len(models))) + model_of_slot
        group = np.unique(group, return_inverse=True)[1].astype(np.int32)
        self.peer_group = np.where(group < capacity, group, np.int32(-1))

    def clear(self) -> None:
        """Start a tick: every value of the workload rows missing, in a new array, as the old one is read later."""
        self.values = np.full_like(self.values, np.nan)

    def demands(self, values: NDArray[np.float32], usage: Sequence[Usage | None] = ()) -> list[Demand]:
        """Demand of each workload, from the device values ``float32[capacity, metrics]`` and the workload rows."""
        x = np.concatenate([self.values.take(self._pages), values.take(self._held)])
        requests, work, active, queued, reported_ready, *others = self._sums(x)
        tokens_in, tokens_out, failed, progress, latency, step, utilization, power = others
        ready = [
            have if n is None else round(min(max(n, 0.0), have))
            for n, have in zip(reported_ready, self.replicas, strict=True)
        ]
        return list(
            rows(
                Demand,
                workload=self.workloads,
                replicas=self.replicas,
                ready=ready,
                devices=self.devices,
                work_rate=work,
                request_rate=requests,
                queued=queued,
                active=active,
                utilization_sum=utilization,
                power_w=power,
                progress=progress,
                tokens_in_rate=tokens_in,
                tokens_out_rate=tokens_out,
                failed=failed,
                latency_s=latency,
                step_s=step,
                usage=usage or repeat(None),
                clocks=repeat(()),
                features=repeat(None),
                first_token_s=repeat(None),
                first_token_p99_s=repeat(None),
                output_token_s=repeat(None),
                kv_cache=repeat(None),
                latencies=repeat(()),
            )
        )

    def _sums(self, x: NDArray[np.float32]) -> list[list[float | None]]:
        """Sum (for some columns, mean) of the known values of each workload by column, ``None`` if none is known."""
        is_known = np.isfinite(x)
        pattern, known = is_known.tobytes(), self._known
        if known is None or known.pattern != pattern:  # hardly ever: an agent reports the same metrics each tick
            shape = COLUMNS, len(self.workloads)
            (places,) = is_known.nonzero()
            bins = self._bins[places]
            count = np.bincount(bins, minlength=COLUMNS * len(self.workloads)).reshape(shape)
            divisors = np.ones(shape, np.int64)
            divisors[AVERAGED] = np.maximum(count[AVERAGED], 1)
            unknown = count == 0
            empty = unknown.all(axis=1)
            none = np.argwhere(unknown & ~empty[:, None])
            known = self._known = Known(pattern, places, bins, divisors, empty.nonzero()[0].tolist(), none.tolist())
        total = np.bincount(known.bins, x.take(known.places), known.divisors.size).astype(np.float64, copy=False)
        columns: list[list[float | None]] = (total.reshape(known.divisors.shape) / known.divisors).tolist()
        for column in known.empty:
            columns[column] = [None] * len(self.workloads)
        for column, workload in known.none:
            columns[column][workload] = None
        return columns
