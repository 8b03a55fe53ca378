"""What goes wrong in the scene, what was decided, and what came of it."""

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace
from tests.dashboard.scenes.fleet import CELL, NOW, device_id, node_name, owner

from flyball_contracts.ids import NS_PER_S, record_id
from flyball_contracts.records import (
    Anomaly,
    AnyDecision,
    Check,
    Effect,
    Evidence,
    Incident,
    IncidentAction,
    Migrate,
    NodeCondition,
    NodeEvent,
    Outcome,
    Preempt,
    Record,
    Scale,
    SubjectState,
    Symptom,
)
from flyball_contracts.records.commands.outcomes import Mode


def cases() -> list[Incident]:
    """What the workers made of it."""
    fault = Symptom(
        detector="xid 79", cause="pcie", strength="fault", severity="critical", since_ns=NOW - 40 * NS_PER_S,
        time_ns=NOW - 40 * NS_PER_S, node=node_name(5), device=device_id(5, 3), workload=owner(5, 48), record="e1",
        text="GPU has fallen off the bus",
    )  # fmt: skip
    waits = Symptom(
        detector="hang", cause="unknown", strength="effect", severity="critical", since_ns=NOW - 38 * NS_PER_S,
        time_ns=NOW - 8 * NS_PER_S, node=node_name(5), workload=owner(5, 48), gang=True, score=0.9,
        evidence=(Evidence(name="hw.power", value=148.0, expected=640.0, unit="W"),),
    )  # fmt: skip
    hot = Symptom(
        detector="departure", cause="thermal", strength="effect", severity="warning", since_ns=NOW - 11 * NS_PER_S,
        time_ns=NOW - 9 * NS_PER_S, node=node_name(30), device=device_id(30, 1), score=0.86, statistical=True,
        evidence=(Evidence(name="hw.temperature{sensor=gpu}", value=91.0, expected=64.0, unit="Cel"),),
    )  # fmt: skip
    moved = next(d for d in decisions() if isinstance(d, Migrate))
    action = IncidentAction(
        decision=moved.id, type="Migrate", workload=moved.workload, time_ns=moved.time_ns, status="done"
    )
    common: dict[str, Any] = {"cell": CELL, "status": "open", "time_ns": NOW - 8 * NS_PER_S, "level": "gpu"}
    return [
        _incident({
                **common, "id": "3f2ac0de3f2ac0de", "revision": 3, "severity": "critical", "cause": "pcie",
                "strength": "fault", "onset_ns": fault.since_ns, "seen_ns": NOW - 8 * NS_PER_S,
                "summary": f"GPU 3 of {node_name(5)}: PCIe fault, by xid 79 (GPU has fallen off the bus); "
                "64 GPUs are affected",
                "node": node_name(5), "device": device_id(5, 3), "workload": owner(5, 48), "model": "h100",
                "symptom_count": 9, "symptoms": (fault, waits), "gpus_affected": 64, "devices": (device_id(5, 3),),
                "nodes": (node_name(5),), "workloads": (owner(5, 48),), "peers": (node_name(4), node_name(6)),
                "actions": (action,), "acknowledged_by": "ann@desk",
        }),
        _incident({
                **common, "id": "77aa00de77aa00de", "revision": 1, "severity": "warning", "cause": "thermal",
                "strength": "effect", "onset_ns": hot.since_ns, "seen_ns": hot.time_ns, "score": 0.86,
                "summary": f"GPU 1 of {node_name(30)}: overheating, by departure", "node": node_name(30),
                "device": device_id(30, 1), "symptoms": (hot,), "gpus_affected": 1, "devices": (device_id(30, 1),),
                "nodes": (node_name(30),), "silence": "maintenance",
        }),
        _rack(),
    ]  # fmt: skip


def conditions() -> list[NodeCondition]:
    """A cordoned node, and one that may not be."""
    common: dict[str, Any] = {
        "cell": CELL,
        "time_ns": NOW - 8 * NS_PER_S,
        "revision": 1,
        "since_ns": NOW - 8 * NS_PER_S,
    }
    return [
        NodeCondition(
            **common, node=node_name(5), condition="cordoned", gpus_moved=64,
            reason="xid 79; nothing is placed on it until there is evidence that it is well",
        ),
        NodeCondition(
            **common, node=node_name(17), condition="watched", reason="xid 79", gpus_moved=64,
            held="2 nodes of the cell are cordoned already, and no more may be; a person decides",
        ),
    ]  # fmt: skip


def _rack() -> Incident:
    dark = [
        Symptom(
            detector="no_telemetry", cause="telemetry", strength="sign", severity="warning",
            since_ns=NOW - 75 * NS_PER_S, time_ns=NOW - 15 * NS_PER_S, node=node_name(n), record=f"quiet-{n}",
            text="nothing was heard of it for 60 s, and its agent did not say that it stops",
        )
        for n in (16, 17, 18, 19)
    ]  # fmt: skip
    names = tuple(node_name(n) for n in (16, 17, 18, 19))
    return _incident({
        "cell": CELL, "status": "open", "time_ns": NOW - 8 * NS_PER_S, "level": "rack", "domain": "row-2/r04",
        "id": "5ac40de05ac40de0", "revision": 1, "severity": "warning", "cause": "network", "strength": "sign",
        "onset_ns": dark[0].since_ns, "seen_ns": NOW - 15 * NS_PER_S, "symptom_count": 4, "symptoms": tuple(dark),
        "summary": "rack row-2/r04: network problem, by no_telemetry (nothing was heard of it for 60 s, and its agent "
        "did not say that it stops), on 4 nodes; 32 GPUs are affected",
        "gpus_affected": 32, "nodes": names,
    })  # fmt: skip


def _incident(given: dict[str, Any]) -> Incident:
    return Incident(**given)


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
            "chat-70b",
            4,
            6,
            "Scale chat-70b out from 4 to 6: the queue grows and requests wait longer than their objective.",
            Effect(cost_usd_per_hour=24.0, carbon_g_per_hour=960.0, gpus=8.0, slo=0.12),
        ),
        *(
            scale(
                age,
                "vision-api",
                3,
                8,
                "Scale vision-api out from 3 to 8: the backlog alone needs five more replicas.",
                Effect(cost_usd_per_hour=60.0, gpus=20.0, slo=0.08),
            )
            for age in (114, 144, 176)
        ),
    ]


_EFFECTS_S = {"pretrain-llm": 9.0, "genome-fold": 12.0, "search-embed": 3.0, "chat-70b": 41.0}


def outcomes(made: Iterable[AnyDecision], mode: Mode = "live") -> list[Record]:
    """The newest runs on the platform, the next four are done, those of ``vision-api`` are refused."""
    found: list[Record] = []
    for i, decision in enumerate(made):
        accepted = Outcome(
            id=record_id("Outcome", decision.id, "accepted"),
            decision=decision.id,
            type="Scale" if isinstance(decision, Scale) else "Migrate" if isinstance(decision, Migrate) else "Preempt",
            target=decision.target,
            cell=decision.cell,
            workload=decision.workload,
            time_ns=decision.time_ns + NS_PER_S // 2,
            status="accepted",
            mode=mode,
            driver="simulated",
            actuator="actuator-1",
        )
        if decision.workload == "vision-api":
            why = "five replicas are more than 30 % of the cell in 10 minutes"
            found.append(replace(accepted, id=f"{accepted.id}r", status="refused", code="blast_radius", detail=why))
            continue
        found.append(accepted)
        before, expected = _states(decision)
        if mode == "dry_run":
            found.append(replace(accepted, id=f"{accepted.id}p", status="planned", before=before, expected=expected))
            continue
        running = replace(
            accepted, id=f"{accepted.id}w", status="running", before=before, expected=expected,
            operation=f"op-{i}", time_ns=decision.time_ns + NS_PER_S,
        )  # fmt: skip
        found.append(running)
        if i > 0:
            after = _EFFECTS_S[decision.workload]
            found.append(
                replace(
                    running,
                    id=f"{accepted.id}d",
                    status="done",
                    observed=expected,
                    effect_after_s=after,
                    time_ns=decision.time_ns + round(after * NS_PER_S),
                    effect=_seen(decision.expected),
                )
            )
    return found


def _states(decision: AnyDecision) -> tuple[SubjectState, SubjectState]:
    if isinstance(decision, Migrate):
        return (
            SubjectState(nodes={decision.replica: decision.from_node}),
            SubjectState(nodes={decision.replica: decision.to_node}),
        )
    assert not isinstance(decision, Check)
    before, after = decision.replicas_before, decision.replicas
    return SubjectState(replicas=before, ready=before), SubjectState(replicas=after, ready=after)


def _seen(expected: Effect) -> Effect:
    """What was observed: close to what was expected, and nothing where nothing was."""

    def near(value: float | None) -> float | None:
        return None if value is None else 0.92 * value

    return Effect(
        cost_usd_per_hour=expected.cost_usd_per_hour,
        carbon_g_per_hour=near(expected.carbon_g_per_hour),
        power_w=near(expected.power_w),
        gpus=expected.gpus,
    )
