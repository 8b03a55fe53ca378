"""A synthetic gateway: a node without devices that reports what requests arrive for some services.

Request traces say what arrived, not what served it. The gateway carries one allocation for each service, so a
service has one replica in the records whatever its load, and a replica takes no device of the cell, which has none; a
decision about it is a what-if, and nothing in the trace follows it.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flyball_contracts.metrics import WORKLOAD
from flyball_contracts.records import Allocation, Inventory, Objective, WorkloadSpec
from flyball_streams.importers.base import BOOT_ID, NS_PER_S, Progress, Tape

NO_LIMIT = 10_000
"""Most replicas of a service whose trace knows no limit."""

_COLUMNS = [
    WORKLOAD.column(key)
    for key in (
        "flyball.workload.request.rate",
        "flyball.workload.token.rate{kind=input}",
        "flyball.workload.token.rate{kind=output}",
        "flyball.workload.work.rate",
    )
]
_READY = WORKLOAD.column("flyball.workload.ready")


class Arrivals(NamedTuple):
    """What arrived in each window, as rates per second.

    `rates` is `[windows, services, 4]`: requests, prompt tokens, generated tokens, work in replica-seconds; NaN
    where nothing is known. The first window starts at `start_s`.
    """

    services: list[str]
    start_s: int
    period_s: int
    rates: NDArray[np.float64]


def write_gateway(tape: Tape, cell: str, arrivals: Arrivals, progress: Progress | None) -> int:
    """Write inventory, specifications and frames; return in how many windows nothing was known of any service.

    The rates of a window are stated at its end, so that nothing is known before it happened.
    """
    start_ns, period_ns = arrivals.start_s * NS_PER_S, arrivals.period_s * NS_PER_S
    names = [f"{cell}-{service}" for service in arrivals.services]
    inventory = Inventory(
        node=f"{cell}-gateway",
        cell=cell,
        epoch=1,
        time_ns=start_ns,
        boot_id=BOOT_ID,
        allocations=tuple(Allocation(workload=name, replica=f"{name}-gateway") for name in names),
    )
    tape.record(inventory, start_ns)
    for i, name in enumerate(names):
        has_work = bool(np.isfinite(arrivals.rates[:, i, 3]).any())
        tape.record(_spec(name, cell, start_ns, 1.0 if has_work else 0.0), start_ns)
    silent = 0
    count = len(arrivals.rates)
    for i in range(count):
        rates = arrivals.rates[i]
        known = np.isfinite(rates[:, 0])
        if known.any():
            values = np.full((len(names), len(WORKLOAD)), np.nan, np.float32)
            values[:, _COLUMNS] = rates
            values[:, _READY] = np.where(known, 1.0, np.nan)
            tape.frame(inventory, WORKLOAD.schema, values, start_ns + (i + 1) * period_ns, period_ns)
        else:
            silent += 1
        if progress is not None:
            progress(i + 1, count)
    return silent


def _spec(name: str, cell: str, time_ns: int, capacity: float) -> WorkloadSpec:
    return WorkloadSpec(
        workload=name,
        cell=cell,
        time_ns=time_ns,
        kind="inference",
        gpus_per_replica=0.0,
        min_replicas=1,
        max_replicas=NO_LIMIT,
        capacity_per_replica=capacity,
        objective=Objective(delay_s=5.0),
    )
