"""A synthetic serving fleet: the parts that request traces lack and decisions need.

Request traces contain arrivals but no servers. The fleet is synthetic, by these rules:

- *Replicas.* Each service has a fixed number of replicas of one GPU: what its mean work takes at the utilisation
  `TARGET_UTILIZATION`, which is the target of its specification too. This is a common way to size without a forecast:
  too small in busy hours, too large in others, so there are reasons to scale out and in. Nothing in the trace follows a
  decision: the fleet does not change, and decisions are repeated when they expire.
- *Nodes* have eight GPUs. Replicas fill them from the first one on, service after service by name. Further nodes are
  free, so that all services together can have the replicas of their busiest windows at the target utilisation, which is
  also the maximum in their specifications. Nodes without a replica send nothing.
- *Balance.* All replicas of a service get the same share of the arrivals: requests, tokens and work of a row are the
  trace's divided by the number of replicas. A row is ready in windows with data.
- *Device telemetry* is not invented: there are no GPU frames. The board is not named; its memory is `BOARD_BYTES`.
- *Models* and boards are not named by these traces, so specifications have no architecture to estimate from.
- *Objective.* `COLD_START_S` from a decision to a ready replica, and `OBJECTIVE` for an interactive service.
- *A service without work* (its trace has no lengths) has one replica of unknown capacity, and is not sized.
- *Clock.* There is a frame in every window from the first to the last of the trace: zeros if nothing arrived, NaN if
  the rates are unknown, so that event time advances.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flyball_contracts.metrics import WORKLOAD
from flyball_contracts.records import Allocation, Device, Inventory, Objective, WorkloadSpec
from flyball_streams.importers.base import (
    BOOT_ID,
    DEVICES_PER_NODE,
    GIB,
    NS_PER_S,
    UNKNOWN_BOARD,
    Progress,
    RecordingBuilder,
)

TARGET_UTILIZATION = 0.6
"""Reserve for the variation within a window, which its mean does not show."""
COLD_START_S = 60.0
"""A warm node that has the image starts a server and loads the weights from its own disk."""
OBJECTIVE = Objective(delay_s=5.0)
BOARD_BYTES = 141 * GIB
"""Holds the weights of 70B parameters in 8 bits, and as many bytes of cache."""

_COLUMNS = [
    WORKLOAD.column(key)
    for key in (
        "flyball.workload.request.rate",
        "flyball.workload.token.rate{kind=input}",
        "flyball.workload.token.rate{kind=output}",
        "flyball.workload.work.rate",
    )
]
_WORK = 3
_READY = WORKLOAD.column("flyball.workload.ready")


class Arrivals(NamedTuple):
    """Arrivals in each window, as rates per second.

    `rates` is `[windows, services, 4]`: requests, prompt tokens, generated tokens, work in replica-seconds; NaN where
    unknown. The first window starts at `start_s`.
    """

    services: list[str]
    start_s: int
    period_s: int
    rates: NDArray[np.float64]


class Size(NamedTuple):
    """Replicas of one service: those that run, and the maximum."""

    running: int
    most: int


def size_of(work: NDArray[np.float64]) -> Size:
    """Replicas for the mean and for the maximum work rate of a series; one each if work is unknown."""
    known = work[np.isfinite(work)]
    if not known.size:
        return Size(1, 1)
    mean, peak = (max(1, math.ceil(float(x) / TARGET_UTILIZATION)) for x in (known.mean(), known.max()))
    return Size(mean, peak)


def write_serving(builder: RecordingBuilder, cell: str, arrivals: Arrivals, progress: Progress | None) -> int:
    """Write inventories, specifications and frames; return the number of windows without any data.

    The rates of a window are recorded at its end, so that nothing is known before it happened.
    """
    start_ns, period_ns = arrivals.start_s * NS_PER_S, arrivals.period_s * NS_PER_S
    names = [f"{cell}-{service}" for service in arrivals.services]
    sizes = [size_of(arrivals.rates[:, i, _WORK]) for i in range(len(names))]
    owner = np.repeat(np.arange(len(names)), [size.running for size in sizes])
    inventories = _inventories(cell, names, owner, sum(size.most for size in sizes), start_ns)
    for inventory in inventories:
        builder.record(inventory, start_ns)
    for i, (name, size) in enumerate(zip(names, sizes, strict=True)):
        has_work = bool(np.isfinite(arrivals.rates[:, i, _WORK]).any())
        builder.record(_spec(name, cell, start_ns, size, 1.0 if has_work else 0.0), start_ns)
    running = np.array([size.running for size in sizes], np.float64)[:, None]
    silent = 0
    for i, rates in enumerate(arrivals.rates):
        known = np.isfinite(rates[:, 0])
        silent += not known.any()
        each = np.full((len(names), len(WORKLOAD)), np.nan, np.float32)
        each[:, _COLUMNS] = rates / running
        each[:, _READY] = np.where(known, 1.0, np.nan)
        rows = each[owner]
        time_ns = start_ns + (i + 1) * period_ns
        for n, inventory in enumerate(inventories):
            if inventory.allocations:
                first = n * DEVICES_PER_NODE
                mine = rows[first : first + len(inventory.allocations)]
                builder.frame(inventory, WORKLOAD.schema, mine, time_ns, period_ns)
        if progress is not None:
            progress(i + 1, len(arrivals.rates))
    return silent


def _inventories(cell: str, names: list[str], owner: NDArray[np.int64], most: int, time_ns: int) -> list[Inventory]:
    """Nodes for `most` devices; the k-th device is held by a replica of service `owner[k]`; later ones are free."""
    first_of = np.searchsorted(owner, np.arange(len(names)))
    replicas = [f"{names[i]}-{k - first_of[i]:04d}" for k, i in enumerate(owner.tolist())]
    nodes: list[Inventory] = []
    for n in range(math.ceil(most / DEVICES_PER_NODE)):
        node, first = f"{cell}-node-{n:04d}", n * DEVICES_PER_NODE
        held = range(first, min(first + DEVICES_PER_NODE, len(owner)))
        nodes.append(
            Inventory(
                node=node,
                cell=cell,
                epoch=1,
                time_ns=time_ns,
                boot_id=BOOT_ID,
                devices=tuple(
                    Device(id=f"{node}/gpu-{row}", model=UNKNOWN_BOARD, memory_bytes=BOARD_BYTES, index=row)
                    for row in range(DEVICES_PER_NODE)
                ),
                allocations=tuple(
                    Allocation(workload=names[int(owner[k])], replica=replicas[k], devices=(k - first,)) for k in held
                ),
            )
        )
    return nodes


def _spec(name: str, cell: str, time_ns: int, size: Size, capacity: float) -> WorkloadSpec:
    return WorkloadSpec(
        workload=name,
        cell=cell,
        time_ns=time_ns,
        kind="inference",
        gpus_per_replica=1.0,
        min_replicas=1,
        max_replicas=size.most,
        capacity_per_replica=capacity,
        target_utilization=TARGET_UTILIZATION,
        cold_start_s=COLD_START_S,
        objective=OBJECTIVE,
    )
