"""Decisions, specifications and worlds for the actuator's tests."""

from collections.abc import Iterable
from typing import Any

from flyball_actuators.guard import NodeInfo, World
from flyball_contracts.records import (
    Allocation,
    Check,
    Device,
    Evidence,
    Inventory,
    Migrate,
    Portion,
    Preempt,
    Scale,
    WorkloadSpec,
)

S = 1_000_000_000
NOW = 1_800_000_000 * S
CELL = "cell-a"


def spec(
    workload: str = "chat",
    *,
    cell: str = CELL,
    interruptible: bool = True,
    removed: bool = False,
    min_replicas: int = 0,
) -> WorkloadSpec:
    return WorkloadSpec(
        workload=workload,
        cell=cell,
        time_ns=NOW,
        kind="inference",
        min_replicas=min_replicas,
        max_replicas=20,
        interruptible=interruptible,
        removed=removed,
    )


def inventory(
    node: str = "n1",
    *,
    cell: str = CELL,
    workload: str = "chat",
    replicas: int = 0,
    price: float | None = None,
    devices: int = 0,
) -> Inventory:
    allocations = tuple(Allocation(workload=workload, replica=f"{workload}-{i}") for i in range(replicas))
    gpus = tuple(Device(id=f"{node}-{i}", model="H100", memory_bytes=2**36, index=i) for i in range(devices))
    return Inventory(
        node=node, cell=cell, epoch=1, time_ns=NOW, allocations=allocations, devices=gpus, price_usd_per_hour=price
    )


def scale(
    id_: str = "d1",
    *,
    workload: str = "chat",
    before: int = 4,
    after: int = 6,
    time_ns: int = NOW,
    ttl_s: int = 120,
    cell: str = CELL,
    target: str = "",
    mix: Iterable[tuple[str, int, int]] = (),
    **fields: Any,
) -> Scale:
    return Scale(
        id=id_,
        target=target or f"{cell}/{workload}",
        cell=cell,
        workload=workload,
        time_ns=time_ns,
        expires_ns=time_ns + ttl_s * S,
        reason="demand rises",
        confidence=0.9,
        policy="test",
        replicas=after,
        replicas_before=before,
        mix=tuple(Portion(offer=name, replicas=n, replicas_before=was) for name, was, n in mix),
        **fields,
    )


def preempt(
    id_: str = "p1",
    *,
    workload: str = "chat",
    before: int = 4,
    after: int = 2,
    until_s: int | None = None,
    victims: tuple[str, ...] = (),
    time_ns: int = NOW,
    cell: str = CELL,
    checkpoint: bool = True,
    beneficiary: str = "",
) -> Preempt:
    return Preempt(
        id=id_,
        target=f"{cell}/{workload}",
        cell=cell,
        workload=workload,
        time_ns=time_ns,
        expires_ns=time_ns + 120 * S,
        reason="something more urgent waits",
        confidence=0.9,
        policy="test",
        evidence=() if until_s is None else (Evidence(name="carbon_intensity", value=400.0, unit="g/kWh"),),
        replicas=after,
        replicas_before=before,
        victims=victims,
        checkpoint=checkpoint,
        beneficiary=beneficiary,
        until_ns=None if until_s is None else time_ns + until_s * S,
    )


def migrate(
    id_: str = "m1", *, workload: str = "chat", replica: str = "chat-0", from_node: str = "n1", to_node: str = "",
    from_device: str = "GPU-1", time_ns: int = NOW, cell: str = CELL,
) -> Migrate:  # fmt: skip
    return Migrate(
        id=id_,
        target=f"{cell}/{workload}",
        cell=cell,
        workload=workload,
        time_ns=time_ns,
        expires_ns=time_ns + 120 * S,
        reason="the device fails",
        confidence=0.9,
        policy="test",
        evidence=(Evidence(name="xid", value=48.0, record="event-1"),) if from_device else (),
        replica=replica,
        from_node=from_node,
        from_device=from_device,
        to_node=to_node,
    )


def world(
    *,
    specs: Iterable[WorkloadSpec] = (),
    running: dict[str, int] | None = None,
    stop: str = "",
    power_w: float | None = None,
) -> World:
    """A cell with nodes n1, n2 and the drained n3, and one workload ``chat`` unless told otherwise."""
    nodes = {
        "n1": NodeInfo(CELL, True),
        "n2": NodeInfo(CELL, True),
        "n3": NodeInfo(CELL, False),
        "far": NodeInfo("cell-b", True),
    }
    known = {s.workload: s for s in (spec(), *specs)}
    placed = {name: {f"{name}-{i}": "n1" for i in range(count)} for name, count in (running or {}).items()}
    return World(known, nodes, {CELL: placed}, stop, {} if power_w is None else {CELL: {"chat": power_w}})


def check(
    id_: str = "c1",
    *,
    node: str = "n1",
    cell: str = CELL,
    devices: tuple[str, ...] = (),
    time_ns: int = NOW,
    **fields: Any,
) -> Check:
    return Check(
        id=id_, target=f"{cell}/node:{node}", cell=cell, workload=f"node:{node}", time_ns=time_ns,
        expires_ns=time_ns + 120 * S, reason="it is empty", confidence=1.0, policy="test", node=node, devices=devices,
        **fields,
    )  # fmt: skip
