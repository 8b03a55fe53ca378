"""The work of the scene: demand, its forecasts, and what replicas sustain."""

from typing import Literal

import numpy as np
from tests.dashboard.scenes.fleet import CELL, NOW, SERVICES, TICKS, Fleet, tick

from flyball_contracts.ids import record_id
from flyball_contracts.records import (
    Capacity,
    ColdStart,
    Demand,
    DemandTick,
    Forecast,
    Method,
    Proposal,
    ProposalTick,
    Record,
)

Kind = Literal["spec", "static", "historic", "online"]
LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)


def replicas_at(name: str, t: int) -> tuple[int, int]:
    """Replicas requested and ready: two scalings were carried out while the scene ran."""
    requested = SERVICES[name][0]
    ready = requested
    if name == "chat-70b":
        requested, ready = (4 if t < 90 else 6), (4 if t < 131 else 6)
    elif name == "search-embed":
        requested = ready = 5 if t < 128 else 4
    return requested, ready


def _ramp(name: str, t: int) -> float:
    rise = 0.28 * (t - 150) / 50 if t > 150 and name == "chat-70b" else 0.0
    return float(0.55 + 0.25 * np.sin(t / 33) + rise)


def _demand(name: str, t: int, half: str, work: float) -> Demand:
    """Half of the demand of a service; ``chat-70b`` is late while its new replicas start."""
    running, ready = (n // 2 + (half == "node/1") * (n % 2) for n in replicas_at(name, t))
    late = name == "chat-70b" and 100 < t < 131
    return Demand(
        workload=name,
        replicas=running,
        ready=ready,
        devices=4 * SERVICES[name][0],
        work_rate=work,
        utilization_sum=2.0,
        request_rate=work / 100,
        latency_s=2.6 if late else 0.4,
        queued=24.0 if late else 1.0,
    )


def demands(fleet: Fleet) -> list[DemandTick]:
    rng = np.random.default_rng(fleet.seed + 1)
    made: list[DemandTick] = []
    for t in range(TICKS):
        work = {name: peak * _ramp(name, t) * float(rng.normal(1, 0.035)) for name, (_, peak) in SERVICES.items()}
        for half in ("node/0", "node/1"):  # a reader adds up the sources
            requested = tuple(_demand(name, t, half, work[name] / 2) for name in SERVICES)
            made.append(DemandTick(cell=CELL, source=half, tick=tick(t), partition=0, demands=requested))
    for t in range(TICKS):
        busy = float(163 + rng.normal(0, 2))
        train = Demand(workload="pretrain-llm", replicas=22, ready=22, devices=176, utilization_sum=busy, progress=0.41)
        made.append(DemandTick(cell=CELL, source="node/0", tick=tick(t), partition=1, demands=(train,)))
    made.append(DemandTick(cell="host", source="node/1", tick=tick(TICKS - 1), partition=0))
    return made


def forecasts(fleet: Fleet) -> list[Record]:
    made: list[Record] = []
    last: dict[str, float] = {}
    for record in demands(fleet):
        for requested in record.demands if record.tick == tick(TICKS - 1) else ():
            amount = requested.work_rate if requested.work_rate is not None else requested.utilization_sum or 0.0
            last[requested.workload] = last.get(requested.workload, 0.0) + amount
    for name, value in last.items():
        slope = 0.0045 if name == "chat-70b" else -0.001
        horizons = tuple(float(h) for h in range(1, 61, 5))
        middle = [value * (1 + slope * h) for h in horizons]
        quantiles = tuple(
            tuple(max(0.0, float(m + value * 0.032 * np.sqrt(h) * z * 0.55)) for z in (-1.64, -0.67, 0.0, 0.67, 1.64))
            for m, h in zip(middle, horizons, strict=True)
        )
        made.append(
            Forecast(
                id=record_id("Forecast", name),
                subject=name,
                cell=CELL,
                time_ns=NOW,
                observed=value,
                levels=LEVELS,
                horizon_s=horizons,
                quantiles=quantiles,
                coverage=(0.06, 0.26, 0.49, 0.74, 0.94),
                trusted=name != "vision-api",
                model="damped",
            )
        )
    made.append(
        ProposalTick(
            cell=CELL,
            source="workload/0",
            tick=tick(TICKS - 1),
            proposals=(
                Proposal(
                    id="p1",
                    action="scale",
                    workload="chat-70b",
                    reason="demand rises",
                    replicas=9,
                    observed_replicas=6,
                ),
            ),
        )
    )
    return made


def capacities() -> list[Record]:
    """One service that is well known, one that its owner and its architecture alone tell of, and one in GPUs."""
    made: list[Record] = []
    for i, (name, (replicas, peak)) in enumerate(SERVICES.items()):
        each = peak / replicas * 1.25
        known: list[tuple[Kind, float, float, float]] = [
            ("spec", 1.0, 0.25, 0.1),
            ("static", 0.7, 0.4, 0.05),
            ("historic", 1.1, 0.12, 0.25),
        ]
        methods: list[tuple[Kind, float, float, float]] = (
            [*known, ("online", 1.04, 0.04, 0.6)] if i == 0 else known[: 3 - i]
        )
        made.append(
            Capacity(
                id=f"capacity-{i}",
                subject=name,
                cell=CELL,
                time_ns=NOW,
                used_work_per_s=each * 1.06 if i == 0 else each,
                source="measured" if i == 0 else "owner",
                cold_start_s=(96.0, 45.0, 300.0)[i % 3],
                work_per_s=each * 1.06 if i == 0 else each,
                relative_error=0.05 if i == 0 else 0.25,
                proven_work_per_s=each if i == 0 else None,
                saturated_windows=14 if i == 0 else 0,
                first_token_s=0.42 if i == 0 else None,
                output_token_s=0.031 if i == 0 else None,
                kv_cache=0.62 if i == 0 else None,
                methods=tuple(
                    Method(name=kind, work_per_s=each * x, relative_error=e, judged=12.0 * (i == 0), weight=w)
                    for kind, x, e, w in methods
                ),
                cold_starts=(ColdStart(gpu_model="h100", zone="GB-13", warm=True, p90_s=96.0, samples=9),) * (i == 0),
            )
        )
    return made
