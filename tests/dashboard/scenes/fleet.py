"""The fleet of the scene: nodes, what they report, and whose they are."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flyball_contracts.frame import Frame, make_frame
from flyball_contracts.ids import NS_PER_S
from flyball_contracts.metrics import GPU, HOST
from flyball_contracts.records import Allocation, Device, Inventory, Objective, Tick, WorkloadSpec

T0 = 1_773_838_800 * NS_PER_S  # 2026-03-18 13:00 UTC
TICKS = 200
NOW = T0 + TICKS * NS_PER_S
CELL = "fleet"
ZONES = ("SE-SE3", "DE", "US-CAL-CISO")
SERVICES = {"chat-70b": (6, 900.0), "search-embed": (4, 2_400.0), "vision-api": (3, 310.0)}
JOBS = ("genome-fold", "nightly-embed", "risk-sim")


@dataclass(frozen=True)
class Fleet:
    """Size and seed of a scene."""

    nodes: int = 48
    gpus: int = 8
    seed: int = 7


def node_name(i: int) -> str:
    return f"gpu-{i:04d}"


def device_id(node: int, gpu: int) -> str:
    return f"GPU-{node:04d}-{gpu}"


def owner(i: int, nodes: int) -> str:
    """Workload of the node at place ``i``: half trains, a quarter serves, the rest is batch, notebooks, free."""
    share = i / nodes
    if share < 0.46:
        return "pretrain-llm"
    if share < 0.72:
        return tuple(SERVICES)[i % 3]
    if share < 0.86:
        return JOBS[i % 3]
    return "notebooks" if share < 0.95 else ""


def inventories(fleet: Fleet) -> list[Inventory]:
    made: list[Inventory] = []
    for i in range(fleet.nodes):
        name = owner(i, fleet.nodes)
        rows = tuple(range(fleet.gpus))
        made.append(
            Inventory(
                node=node_name(i),
                cell=CELL,
                epoch=1,
                time_ns=T0,
                boot_id="b",
                devices=tuple(
                    Device(id=device_id(i, g), model="H100-SXM", memory_bytes=80 << 30, index=g) for g in rows
                ),
                allocations=(Allocation(workload=name, replica=f"{name}-{i}", devices=rows),) if name else (),
                zone=ZONES[i * len(ZONES) // fleet.nodes],
                price_usd_per_hour=24.0,
            )
        )
    made.append(Inventory(node="this-host", cell="host", epoch=1, time_ns=T0, cpu_count=8))
    return made


def frames(fleet: Fleet, ticks: Sequence[int]) -> list[Frame]:
    rng = np.random.default_rng(fleet.seed)
    load = {"pretrain-llm": 0.93, "notebooks": 0.14, "": 0.0, **dict.fromkeys(JOBS, 0.8)}
    load |= {"chat-70b": 0.68, "search-embed": 0.52, "vision-api": 0.38}
    made: list[Frame] = []
    for tick in ticks:
        for i in range(fleet.nodes):
            base = load[owner(i, fleet.nodes)]
            use = np.clip(base + rng.normal(0, 0.07 if base else 0.0, fleet.gpus), 0, 1)
            values = np.full((fleet.gpus, len(GPU)), np.nan, np.float32)
            values[:, GPU.column("hw.gpu.utilization{task=general}")] = use
            values[:, GPU.column("hw.power")] = 75 + 590 * use + rng.normal(0, 6, fleet.gpus)
            values[:, GPU.column("hw.temperature{sensor=gpu}")] = 31 + 40 * use + rng.normal(0, 1.5, fleet.gpus)
            values[:, GPU.column("hw.gpu.memory.utilization")] = np.clip(0.2 + 0.7 * use, 0, 1)
            made.append(_frame(node_name(i), GPU.schema, values, tick))
        host = np.full((1, len(HOST)), np.nan, np.float32)
        host[0, HOST.column("system.cpu.utilization")] = 0.31
        made.append(_frame("this-host", HOST.schema, host, tick))
    return made


def _frame(node: str, schema: int, values: NDArray[np.float32], tick: int) -> Frame:
    return make_frame(
        values,
        schema=schema,
        node=node,
        boot_id="b",
        epoch=1,
        seq=tick,
        time_ns=T0 + tick * NS_PER_S,
        period_ns=NS_PER_S,
        inventory_epoch=1,
    )


def specs() -> list[WorkloadSpec]:
    made = [
        WorkloadSpec(
            workload=name,
            cell=CELL,
            time_ns=T0,
            kind="inference",
            priority=10,
            max_replicas=24,
            objective=Objective(delay_s=2.0),
            capacity_per_replica=peak / replicas * 1.25,
        )
        for name, (replicas, peak) in SERVICES.items()
    ]
    made.append(WorkloadSpec(workload="pretrain-llm", cell=CELL, time_ns=T0, kind="training", gang_size=22, priority=8))
    made += [
        WorkloadSpec(
            workload=name,
            cell=CELL,
            time_ns=T0,
            kind="batch",
            interruptible=True,
            deadline_ns=NOW + (9 + 5 * i) * 3600 * NS_PER_S,
            duration_s=5 * 3600.0,
        )
        for i, name in enumerate(JOBS)
    ]
    return made


def tick(index: int) -> Tick:
    return Tick(index=T0 // NS_PER_S + index, period_ns=NS_PER_S)
