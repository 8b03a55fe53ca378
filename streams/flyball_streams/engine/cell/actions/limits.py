"""What the specification of a workload allows: models, whole gangs, and how many replicas."""

from flyball_contracts.records import WorkloadSpec
from flyball_streams.engine.offers import LEAST_PART

SLACK = 1e-9
"""Tolerance for rounding errors, in GPUs."""
MOST_REPLICAS = 2**31 - 1


def accepts(spec: WorkloadSpec, model: str) -> bool:
    """Whether a GPU model is one that the workload accepts."""
    return not spec.gpu_models or model in spec.gpu_models


def gang_of(spec: WorkloadSpec) -> int:
    """Replicas that run together or not at all."""
    return max(1, min(spec.gang_size, spec.max_replicas))


def per_replica(spec: WorkloadSpec) -> float:
    """GPUs of one replica, 0 or more; a share counts as :data:`LEAST_PART` at least, so that a cell can fill up."""
    return max(LEAST_PART, spec.gpus_per_replica) if spec.gpus_per_replica > 0 else 0.0


def bounded(spec: WorkloadSpec, replicas: int) -> int:
    """Nearest number of replicas that the specification allows: within its limits, and in whole gangs."""
    least = max(0, min(spec.min_replicas, MOST_REPLICAS))
    most = max(least, min(spec.max_replicas, MOST_REPLICAS))
    gang = gang_of(spec)
    wanted = -(-max(least, min(replicas, most)) // gang) * gang
    return wanted if wanted <= most else most - most % gang
