"""What the specification of a workload allows: models, whole gangs, and how many replicas."""

from flyball_contracts.records import WorkloadSpec

SLACK = 1e-9
"""Tolerance for rounding errors, in GPUs."""


def accepts(spec: WorkloadSpec, model: str) -> bool:
    """Whether a GPU model is one that the workload accepts."""
    return not spec.gpu_models or model in spec.gpu_models


def gang_of(spec: WorkloadSpec) -> int:
    """Replicas that run together or not at all."""
    return max(1, min(spec.gang_size, spec.max_replicas))


def per_replica(spec: WorkloadSpec) -> float:
    """GPUs of one replica, 0 or more."""
    return max(0.0, spec.gpus_per_replica)


def bounded(spec: WorkloadSpec, replicas: int) -> int:
    """Nearest number of replicas that the specification allows: within its limits, and in whole gangs."""
    least = max(0, spec.min_replicas)
    most = max(least, min(spec.max_replicas, 2**31 - 1))
    gang = gang_of(spec)
    wanted = -(-max(least, min(replicas, most)) // gang) * gang
    return wanted if wanted <= most else most - most % gang
