"""A fleet as the dashboard may see it: every kind of record, made from a seed, with fixed event times."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from confluent_kafka import Producer
from msgspec.structs import replace
from numpy.typing import NDArray

from flyball_contracts.codec import Message, frame_message, record_message
from flyball_contracts.frame import Frame, make_frame
from flyball_contracts.ids import NS_PER_S, record_id
from flyball_contracts.kafka import producer_settings
from flyball_contracts.metrics import GPU, HOST
from flyball_contracts.records import (
    Allocation,
    Anomaly,
    AnyDecision,
    Capacity,
    ColdStart,
    Demand,
    DemandTick,
    Device,
    Effect,
    Evidence,
    Forecast,
    Inventory,
    Method,
    Migrate,
    NodeEvent,
    Outcome,
    Plan,
    Preempt,
    Proposal,
    ProposalTick,
    Record,
    Scale,
    Signal,
    Tick,
    WorkloadSpec,
)

Item = Record | Frame
Kind = Literal["spec", "static", "historic", "online"]
T0 = 1_773_838_800 * NS_PER_S  # 2026-03-18 13:00 UTC
TICKS = 200
NOW = T0 + TICKS * NS_PER_S
CELL = "fleet"
ZONES = ("SE-SE3", "DE", "US-CAL-CISO")
LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)
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


def demands(fleet: Fleet) -> list[DemandTick]:
    rng = np.random.default_rng(fleet.seed + 1)
    made: list[DemandTick] = []
    for name, (replicas, peak) in SERVICES.items():
        for t in range(TICKS):
            ramp = 0.55 + 0.25 * np.sin(t / 33) + (0.28 * (t - 150) / 50 if t > 150 and name == "chat-70b" else 0)
            work = float(peak * ramp * rng.normal(1, 0.035))
            for half in ("node/0", "node/1"):  # a reader adds up the sources
                running = replicas // 2 + (half == "node/1") * (replicas % 2)
                asked = Demand(
                    workload=name,
                    replicas=running,
                    ready=running,
                    devices=4 * replicas,
                    work_rate=work / 2,
                    utilization_sum=2.0,
                )
                made.append(DemandTick(cell=CELL, source=half, tick=tick(t), partition=0, demands=(asked,)))
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
        for asked in record.demands if record.tick == tick(TICKS - 1) else ():
            amount = asked.work_rate if asked.work_rate is not None else asked.utilization_sum or 0.0
            last[asked.workload] = last.get(asked.workload, 0.0) + amount
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
                    wish="scale",
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
                source="learned" if i == 0 else "owner",
                cold_start_s=(96.0, 45.0, 300.0)[i % 3],
                work_per_s=each * 1.06 if i == 0 else each,
                relative_error=0.05 if i == 0 else 0.25,
                proven_work_per_s=each if i == 0 else None,
                saturated_windows=14 if i == 0 else 0,
                methods=tuple(
                    Method(name=kind, work_per_s=each * x, relative_error=e, judged=12.0 * (i == 0), weight=w)
                    for kind, x, e, w in methods
                ),
                cold_starts=(ColdStart(gpu_model="h100", zone="GB-13", warm=True, p90_s=96.0, samples=9),) * (i == 0),
            )
        )
    return made


def signals() -> list[Record]:
    made: list[Record] = []
    start = NOW - NOW % (3600 * NS_PER_S) - 4 * 3600 * NS_PER_S
    shapes = {"SE-SE3": (34, 9, 15), "DE": (360, 150, 13), "US-CAL-CISO": (245, 110, 20)}
    for zone, (mean, swing, noon) in shapes.items():
        hours = [13 - 4 + h for h in range(32)]
        curve = tuple(
            float(max(12.0, mean - swing * np.cos(2 * np.pi * (h - noon) / 24) + 0.1 * swing * np.sin(h * 2.1)))
            for h in hours
        )
        made.append(
            Signal(zone=zone, kind="carbon_intensity", published_ns=start, start_ns=start, step_s=3600.0, p50=curve)
        )
    return made


def plans() -> list[Record]:
    made: list[Record] = []
    start = NOW - NOW % (900 * NS_PER_S)
    runs = {
        "genome-fold": ("DE", [3 <= i < 5 or 68 <= i < 88 for i in range(96)], 0.38, 20),
        "nightly-embed": ("US-CAL-CISO", [18 <= i < 34 for i in range(96)], 0.46, 14),
        "risk-sim": ("SE-SE3", [0 <= i < 8 or 80 <= i < 88 for i in range(96)], 0.12, 24),
    }
    for name, (zone, run, saving, hours) in runs.items():
        made.append(
            Plan(
                id=record_id("Plan", name),
                subject=name,
                cell=CELL,
                zone=zone,
                time_ns=NOW,
                start_ns=start,
                step_s=900.0,
                run=tuple(run),
                cost=tuple(200.0 for _ in run),
                saving=saving,
                feasible=True,
                deadline_ns=NOW + hours * 3600 * NS_PER_S,
            )
        )
    return made


def troubles() -> list[Record]:
    made: list[Record] = [
        NodeEvent(
            id="e1",
            node=node_name(5),
            device=device_id(5, 3),
            time_ns=NOW - 40 * NS_PER_S,
            kind="xid",
            code=79,
            severity="critical",
            remedy="reset_gpu",
            message="GPU has fallen off the bus",
        )
    ]
    rows = (
        (5, 3, "failing", 0.98, "hw.errors{type=uncorrected}", 14.0, 0.0, "{error}", 22),
        (17, 6, "straggling", 0.91, "flyball.workload.step.time", 1.84, 1.21, "s", 14),
        (30, 1, "record_ratio", 0.86, "hw.temperature{sensor=gpu}", 91.0, 64.0, "Cel", 9),
        (38, 4, "record_ratio", 0.82, "hw.power", 664.0, 431.0, "W", 4),
    )
    for node, gpu, detector, score, name, value, expected, unit, age in rows:
        for repeat in range(3):
            time_ns = NOW - (age + repeat) * NS_PER_S
            made.append(
                Anomaly(
                    id=record_id("Anomaly", node, gpu, detector, time_ns),
                    subject=device_id(node, gpu),
                    cell=CELL,
                    node=node_name(node),
                    time_ns=time_ns,
                    detector=detector,
                    score=score,
                    evidence=(Evidence(name=name, value=value, expected=expected, unit=unit),),
                    workload=owner(node, 48),
                )
            )
    return sorted(made, key=lambda r: r.time_ns)  # type: ignore[attr-defined]


def scale(age_s: int, workload: str, before: int, after: int, reason: str, effect: Effect) -> Scale:
    time_ns = NOW - age_s * NS_PER_S
    return Scale(
        id=record_id("Scale", workload, time_ns),
        target=f"{CELL}/{workload}",
        cell=CELL,
        workload=workload,
        time_ns=time_ns,
        expires_ns=time_ns + 120 * NS_PER_S,
        reason=reason,
        confidence=0.92,
        policy="quantile-sizing",
        replicas=after,
        replicas_before=before,
        expected=effect,
        evidence=(
            Evidence(name="demand forecast, 95 %", value=1180.0, unit="{work}/s", expected=900.0, record="forecast-1"),
            Evidence(name="capacity ready", value=1125.0, unit="{work}/s"),
            Evidence(name="cold start", value=45.0, unit="s"),
        ),
    )


def decisions() -> list[AnyDecision]:
    lead = NOW - 18 * NS_PER_S
    later = NOW - 31 * NS_PER_S
    return [
        scale(
            6,
            "chat-70b",
            6,
            9,
            "Scale chat-70b out from 6 to 9: demand will pass the ready capacity in 45 s with probability 0.95.",
            Effect(cost_usd_per_hour=36.0, carbon_g_per_hour=1420.0, gpus=12.0, slo=0.021),
        ),
        Migrate(
            id=record_id("Migrate", lead),
            target=f"{CELL}/pretrain-llm",
            cell=CELL,
            workload="pretrain-llm",
            time_ns=lead,
            expires_ns=lead + 120 * NS_PER_S,
            confidence=0.95,
            policy="device-health",
            replica="pretrain-llm-5",
            from_node=node_name(5),
            from_device=device_id(5, 3),
            to_node=node_name(46),
            expected=Effect(slo=0.004),
            reason="Move replica pretrain-llm-5 away: XID 79, the GPU has fallen off the bus and the gang is stalled.",
            evidence=(Evidence(name="hw.errors{type=uncorrected}", value=14.0, unit="{error}", expected=0.0),),
        ),
        Preempt(
            id=record_id("Preempt", later),
            target=f"{CELL}/genome-fold",
            cell=CELL,
            workload="genome-fold",
            time_ns=later,
            expires_ns=later + 120 * NS_PER_S,
            confidence=0.8,
            policy="carbon-timing",
            replicas=0,
            replicas_before=2,
            until_ns=NOW + 17 * 3600 * NS_PER_S,
            expected=Effect(cost_usd_per_hour=-48.0, carbon_g_per_hour=-3900.0, power_w=-9800.0),
            reason="Pause genome-fold: carbon is 380 g/kWh in DE now and 214 g/kWh in the slots planned later.",
            evidence=(Evidence(name="carbon intensity now", value=380.0, unit="gCO2e/kWh", expected=214.0),),
        ),
        scale(
            75,
            "search-embed",
            5,
            4,
            "Scale search-embed in from 5 to 4: even the 75 % line of the forecast fits four replicas for two minutes.",
            Effect(cost_usd_per_hour=-12.0, carbon_g_per_hour=-470.0, gpus=-4.0, slo=-0.001),
        ),
        scale(
            110,
            "vision-api",
            3,
            8,
            "Scale vision-api out from 3 to 8: the backlog alone needs five more replicas.",
            Effect(cost_usd_per_hour=60.0, gpus=20.0, slo=0.08),
        ),
    ]


def outcomes(made: Iterable[AnyDecision]) -> list[Record]:
    """The first is accepted, the next three are done, the last is refused."""
    found: list[Record] = []
    for i, decision in enumerate(made):
        accepted = Outcome(
            id=record_id("Outcome", decision.id, "accepted"),
            decision=decision.id,
            type="Scale" if isinstance(decision, Scale) else "Migrate" if isinstance(decision, Migrate) else "Preempt",
            target=decision.target,
            cell=decision.cell,
            workload=decision.workload,
            time_ns=decision.time_ns + NS_PER_S,
            status="accepted",
            mode="dry_run",
            driver="dry_run",
        )
        if i == 4:
            why = "five replicas are more than 30 % of the cell in 10 minutes"
            refused = replace(accepted, id=f"{accepted.id}r", status="refused", code="blast_radius", detail=why)
            found.append(refused)
            continue
        found.append(accepted)
        if i > 0:
            found.append(
                replace(
                    accepted, id=f"{accepted.id}d", status="done", answer="would have been applied", effect_after_s=1.2
                )
            )
    return found


def scene(fleet: Fleet | None = None) -> list[Item]:
    """Everything, in an order in which it may arrive."""
    fleet = fleet or Fleet()
    made = decisions()
    ticks = range(TICKS - 14, TICKS) if fleet.nodes < 200 else range(TICKS - 2, TICKS)
    return [
        *inventories(fleet),
        *specs(),
        *signals(),
        *frames(fleet, ticks),
        *demands(fleet),
        *forecasts(fleet),
        *capacities(),
        *plans(),
        *troubles(),
        *made,
        *outcomes(made),
    ]


def message_of(item: Item) -> Message:
    return frame_message(item) if isinstance(item, Frame) else record_message(item, "/scene")


def publish(bootstrap: str, messages: Iterable[Message]) -> None:
    """Produce messages and wait until the broker has them."""
    producer = Producer(producer_settings(bootstrap, client_id="scene"))
    for message in messages:
        producer.produce(message.topic, message.value, message.key, headers=list(message.headers))
        producer.poll(0)
    assert producer.flush(30) == 0
