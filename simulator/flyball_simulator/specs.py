"""Specifications of the simulated workloads, as their owners would declare them."""

import numpy as np
from msgspec.structs import replace

from flyball_contracts.config import Batch, FleetConfig, FleetWorkload, Notebooks, Service, Training
from flyball_contracts.errors import ConfigError
from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import Objective, WorkloadSpec
from flyball_contracts.records.workloads import WorkloadKind
from flyball_simulator.cell.placement import Demanded
from flyball_simulator.hardware.gpus import USAGE_BY_KIND
from flyball_simulator.hardware.site import Site
from flyball_simulator.hardware.sku import SKUS, SkuData

PAUSE_NOTEBOOK_S = 5.0


def all_workloads(config: FleetConfig) -> list[FleetWorkload]:
    """All workloads in the order in which the fleet numbers them: by kind, then as configured."""
    return [*config.services, *config.trainings, *config.notebooks, *config.batches]


def workload_keys(config: FleetConfig) -> list[str]:
    """Configuration key of each workload, such as ``services[0]``, in the order of the fleet."""
    kinds = ("services", "trainings", "notebooks", "batches")
    return [f"{kind}[{i}]" for kind in kinds for i in range(len(getattr(config, kind)))]


def make_specs(config: FleetConfig, start_ns: int) -> list[WorkloadSpec]:
    """Specification of each workload.

    Raises :class:`ConfigError` for a duplicate name, an unknown pool, or impossible numbers of replicas.
    """
    pools = {pool.name: SKUS[pool.sku] for pool in config.pools}
    sizes = {pool.name: pool.gpus_per_node for pool in config.pools}
    seen: set[str] = set()
    specs: list[WorkloadSpec] = []
    for key, workload in zip(workload_keys(config), all_workloads(config), strict=True):
        name = workload.name
        if name in seen:
            raise ConfigError(f"{key}.name: {name!r} is used twice; give each workload its own")
        seen.add(name)
        unknown = [pool for pool in workload.pools if pool not in pools]
        if unknown or not workload.pools:
            raise ConfigError(f"{key}.pools: name some of {', '.join(pools)}; got {list(workload.pools)}")
        if workload.gpus_per_replica > max(sizes[pool] for pool in workload.pools):
            raise ConfigError(f"{key}.gpus_per_replica: {name}: {workload.gpus_per_replica} do not fit on one node")
        spec = _spec(config, workload, [pools[pool] for pool in workload.pools], start_ns)
        if workload.replicas > spec.max_replicas or spec.min_replicas > spec.max_replicas:
            raise ConfigError(f"{key}.replicas: {name}: replicas and min_replicas may be at most {spec.max_replicas}")
        if isinstance(workload, Batch) and workload.gang and workload.replicas not in (0, workload.nominal_replicas):
            raise ConfigError(f"{key}.replicas: {name}: a gang starts with 0 or {workload.nominal_replicas}")
        specs.append(spec)
    return specs


def make_demanded(config: FleetConfig, site: Site, specs: list[WorkloadSpec]) -> tuple[Demanded, ...]:
    """Placement requirements of each workload."""
    nodes_of = {
        pool.name: np.array([i for i, node in enumerate(site.nodes) if node.pool.name == pool.name], np.int64)
        for pool in config.pools
    }
    return tuple(
        Demanded(
            name=spec.workload,
            priority=spec.priority,
            gpus=workload.gpus_per_replica,
            gang=spec.gang_size > 1,
            most=spec.max_replicas,
            cold_start_ns=round(workload.cold_start_s * NS_PER_S),
            stop_ns=round(workload.stop_s * NS_PER_S),
            nodes=tuple(
                nodes_of[pool][np.diff(site.starts)[nodes_of[pool]] >= workload.gpus_per_replica]
                for pool in workload.pools
            ),
        )
        for workload, spec in zip(all_workloads(config), specs, strict=True)
    )


def _spec(config: FleetConfig, workload: FleetWorkload, skus: list[SkuData], start_ns: int) -> WorkloadSpec:
    base = WorkloadSpec(
        workload=workload.name,
        cell=config.cell,
        time_ns=start_ns,
        kind="inference",
        tenant=workload.tenant,
        priority=workload.priority,
        gpus_per_replica=float(workload.gpus_per_replica),
        gpu_models=tuple(dict.fromkeys(sku.model for sku in skus)),
        cold_start_s=workload.cold_start_s,
    )
    return _of_kind(base, workload, skus[0], start_ns)


def _of_kind(base: WorkloadSpec, workload: FleetWorkload, sku: SkuData, start_ns: int) -> WorkloadSpec:
    match workload:
        case Service():
            return replace(
                base,
                min_replicas=workload.min_replicas,
                max_replicas=workload.max_replicas,
                capacity_per_replica=workload.capacity_tokens_per_s,
                objective=Objective(delay_s=workload.delay_s, attainment=workload.attainment),
                power_w_per_replica=_power_w(base, sku, "inference"),
                model=workload.model,
            )
        case Training():
            return replace(
                base,
                kind="training",
                gang_size=max(workload.replicas, 1),
                min_replicas=workload.replicas,
                max_replicas=max(workload.replicas, 1),
                checkpoint_s=workload.checkpoint_s,
                power_w_per_replica=_power_w(base, sku, "training"),
            )
        case Notebooks():
            return replace(
                base,
                kind="notebook",
                max_replicas=max(workload.replicas, 1),
                interruptible=True,
                checkpoint_s=PAUSE_NOTEBOOK_S,
            )
        case Batch():
            return replace(
                base,
                kind="batch",
                gang_size=workload.nominal_replicas if workload.gang else 1,
                max_replicas=workload.nominal_replicas,
                interruptible=True,
                checkpoint_s=workload.checkpoint_s,
                duration_s=workload.duration_s,
                deadline_ns=None if workload.deadline_s is None else start_ns + round(workload.deadline_s * NS_PER_S),
                power_w_per_replica=_power_w(base, sku, "batch"),
            )
        case _:
            raise TypeError(f"{type(workload).__name__} is not a kind of workload")


def _power_w(spec: WorkloadSpec, sku: SkuData, kind: WorkloadKind) -> float:
    busy = (sku.power_limit_w - sku.idle_power_w) * USAGE_BY_KIND[kind].power
    return round(spec.gpus_per_replica * (sku.idle_power_w + busy), 1)
