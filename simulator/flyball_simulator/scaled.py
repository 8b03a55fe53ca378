"""Larger fleets of the same structure, for benchmarks."""

from typing import TypeVar

from msgspec.structs import replace

from flyball_contracts.config import FailingGpu, FleetConfig, FleetWorkload, StragglingGpu

W = TypeVar("W", bound=FleetWorkload)
F = TypeVar("F", FailingGpu, StragglingGpu)


def scaled(config: FleetConfig, copies: int) -> FleetConfig:
    """The same zones with ``copies`` of everything else; copy ``i`` above 0 is called ``NAME.i``."""

    def named(name: str, i: int) -> str:
        return f"{name}.{i}" if i else name

    def workloads(group: tuple[W, ...]) -> tuple[W, ...]:
        return tuple(
            replace(w, name=named(w.name, i), pools=tuple(named(pool, i) for pool in w.pools))
            for i in range(copies)
            for w in group
        )

    def faults(group: tuple[F, ...]) -> tuple[F, ...]:
        return tuple(replace(f, workload=named(f.workload, i)) for i in range(copies) for f in group)

    return replace(
        config,
        pools=tuple(replace(pool, name=named(pool.name, i)) for i in range(copies) for pool in config.pools),
        trainings=workloads(config.trainings),
        services=workloads(config.services),
        notebooks=workloads(config.notebooks),
        batches=workloads(config.batches),
        failing=faults(config.failing),
        straggling=faults(config.straggling),
    )
