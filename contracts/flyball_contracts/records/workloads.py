"""What a workload is and what its owner promised and allows."""

from typing import Literal

from flyball_contracts.records.base import Part, Record, TimeNs

WorkloadKind = Literal["inference", "training", "notebook", "batch"]


class Objective(Part, frozen=True, kw_only=True):
    """Service-level objective: ``attainment`` of the requests wait less than ``delay_s``."""

    delay_s: float
    attainment: float = 0.99


class WorkloadSpec(Record, frozen=True, kw_only=True):
    """One workload, as its owner declares it; compacted by workload.

    ``capacity_per_replica`` is the sustainable work of one replica, in the work unit of its telemetry per
    second (0: unknown). ``cold_start_s`` is the time from a decision to a ready replica. A deferrable job has a
    ``deadline_ns`` and ``duration_s``, the running time that it needs in all. ``checkpoint_s`` is what a pause
    costs. Higher ``priority`` wins.
    """

    workload: str
    cell: str
    time_ns: TimeNs
    kind: WorkloadKind
    tenant: str = "default"
    priority: int = 0
    gang_size: int = 1
    gpus_per_replica: float = 1.0
    gpu_models: tuple[str, ...] = ()
    min_replicas: int = 0
    max_replicas: int = 1
    capacity_per_replica: float = 0.0
    target_utilization: float = 0.8
    cold_start_s: float = 60.0
    objective: Objective | None = None
    interruptible: bool = False
    checkpoint_s: float = 0.0
    deadline_ns: TimeNs | None = None
    duration_s: float | None = None
    power_w_per_replica: float | None = None
    removed: bool = False
