"""Cost and results of operating a cell so far."""

from typing import Literal

from flyball_contracts.records.base import Part, Record, TimeNs

Scenario = Literal["actual", "baseline"]


class WorkloadAccount(Part, frozen=True, kw_only=True):
    """The part of one workload; ``None`` where a kind of workload has no such number.

    ``requests`` arrived since the start, ``in_time`` of those that ended met the objective's delay. ``queued`` wait
    now, and ``delay_s`` is the wait of a request that arrives now. ``replicas`` are requested, ``ready`` of them serve.
    ``progress`` is the share of a job that is done, ``in_time_end`` whether it ended before its deadline.
    """

    workload: str
    replicas: int
    ready: int
    gpu_h: float
    requests: float | None = None
    in_time: float | None = None
    queued: float | None = None
    delay_s: float | None = None
    progress: float | None = None
    in_time_end: bool | None = None
    lost_gpu_h: float = 0.0
    useful_gpu_h: float | None = None


class Account(Record, frozen=True, kw_only=True):
    """Totals of one cell from ``since_ns`` to ``time_ns``.

    ``scenario`` is ``actual`` for what happened and ``baseline`` for the same time and demand without Flyball.
    ``gpu_h`` are GPU-hours held by workloads, ``cost_usd`` what the machines cost, ``energy_j`` what the GPUs used and
    ``carbon_g`` what that emitted at the grid's actual intensity. ``requests`` and ``in_time`` are sums over services,
    ``lost_gpu_h`` the GPU-hours of work that was done and lost (since the last checkpoint, or on a dead GPU).
    ``useful_gpu_h`` are the hours that healthy GPUs at full load need for the work that was done and kept: divide cost,
    energy and carbon by them where one scenario does more work than the other. ``None`` where not known.
    """

    id: str
    subject: str
    cell: str
    scenario: Scenario
    since_ns: TimeNs
    time_ns: TimeNs
    gpu_h: float
    cost_usd: float
    energy_j: float
    carbon_g: float
    requests: float
    in_time: float
    queued: float
    lost_gpu_h: float
    useful_gpu_h: float | None = None
    workloads: tuple[WorkloadAccount, ...] = ()
