"""The effect of a change, from the observed states, and how it differs from the expected one."""

from flyball_contracts.config import PoolConfig
from flyball_contracts.records import Effect, SubjectState, WorkloadSpec


def effect_of(
    before: SubjectState, observed: SubjectState, spec: WorkloadSpec | None, usd_per_gpu_hour: float | None
) -> Effect | None:
    """Change of a workload's resources between two states; ``None`` if neither has replicas.

    GPUs are replicas times GPUs per replica; cost is that of these GPUs at ``usd_per_gpu_hour`` (USD per hour); power
    is replicas times the specification's W per replica. If both states have a mix, its portions give GPUs, cost, carbon
    and power.
    """
    if before.mix and observed.mix:
        was, now = _sums(before), _sums(observed)
        return Effect(
            gpus=_less(now[0], was[0]),
            cost_usd_per_hour=_less(now[1], was[1]),
            carbon_g_per_hour=_less(now[2], was[2]),
            power_w=_less(now[3], was[3]),
        )
    changed = _changed(before, observed)
    if changed is None or spec is None:
        return None
    gpus = changed * spec.gpus_per_replica
    power = None if spec.power_w_per_replica is None else changed * spec.power_w_per_replica
    cost = None if usd_per_gpu_hour is None else gpus * usd_per_gpu_hour
    return Effect(gpus=gpus, cost_usd_per_hour=cost, power_w=power)


def effect_of_pool(before: SubjectState, observed: SubjectState, pool: PoolConfig) -> Effect | None:
    """Change of a pool's cost, by its machines before and after; ``None`` if they are unknown."""
    changed = _changed(before, observed)
    return None if changed is None else Effect(cost_usd_per_hour=changed * pool.price_usd_per_hour)


def difference(expected: SubjectState | None, observed: SubjectState) -> str:
    """Text on how the observed state differs from the expected one; empty if they agree or one is unknown."""
    if expected is None:
        return ""
    differences: list[str] = []
    for name, what in (("replicas", "replicas"), ("ready", "ready replicas"), ("power_limit_w", "W of power limit")):
        wanted, shown = getattr(expected, name), getattr(observed, name)
        if wanted is not None and shown is not None and wanted != shown:
            differences.append(f"{wanted:g} {what} were expected, the platform shows {shown:g}")
    for replica, node in sorted(expected.nodes.items()):
        shown = observed.nodes.get(replica)
        if shown is not None and shown != node:
            differences.append(f"replica {replica!r} was expected {_at(node)}, the platform shows it {_at(shown)}")
    if expected.resources is not None and observed.resources is not None:
        for name in ("cpu", "memory_bytes", "gpu_profile"):
            wanted, shown = getattr(expected.resources, name), getattr(observed.resources, name)
            if wanted is not None and shown is not None and wanted != shown:
                differences.append(f"resources.{name} {wanted} was expected, the platform shows {shown}")
    wanted_counts, shown_counts = _counts(expected), _counts(observed)
    if wanted_counts and shown_counts and wanted_counts != shown_counts:
        differences.append(f"replicas by offer were expected to be {wanted_counts}, the platform shows {shown_counts}")
    return "; ".join(differences)


def _changed(before: SubjectState, observed: SubjectState) -> int | None:
    if before.ready is not None and observed.ready is not None:
        return observed.ready - before.ready
    if before.replicas is not None and observed.replicas is not None:
        return observed.replicas - before.replicas
    return None


def _sums(state: SubjectState) -> tuple[float | None, ...]:
    parts = [(p.replicas, p.gpus, p.usd_per_hour, p.carbon_g_per_hour, p.power_w) for p in state.mix if p.replicas]
    return tuple(
        None if any(part[i] is None for part in parts) else sum(part[0] * (part[i] or 0.0) for part in parts)
        for i in range(1, 5)
    )


def _less(now: float | None, was: float | None) -> float | None:
    return None if now is None or was is None else now - was


def _at(node: str) -> str:
    return f"on {node!r}" if node else "stopped"


def _counts(state: SubjectState) -> dict[str, int]:
    return {part.offer: part.replicas for part in state.mix if part.replicas}
