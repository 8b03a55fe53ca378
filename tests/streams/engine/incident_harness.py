"""Test harness: one incident manager with its tables and symptoms."""

from typing import Any

import msgspec
from tests.streams.engine.scene import CELL, FIRST, PERIOD_NS, START_NS, inventory, spec, tick

from flyball_contracts.records import (
    Allocation,
    Cause,
    Incident,
    Inventory,
    Label,
    Link,
    Migrate,
    Record,
    Scale,
    Silence,
    Symptom,
)
from flyball_contracts.records.incidents import Strength
from flyball_streams.engine import Directory
from flyball_streams.engine.cell.incidents.manager import IncidentManager, IncidentState
from flyball_streams.engine.packing import pack_struct, unpack_struct
from flyball_streams.engine.parameters import HealthParameters

HEALTH = HealthParameters()


def at(index: int) -> int:
    """Nanoseconds of a tick's beginning."""
    return (FIRST + index) * PERIOD_NS


def symptom(node: str, row: int | None, index: int, cause: Cause, strength: Strength, **more: Any) -> Symptom:
    """A symptom of one GPU, or of the node, that begins in a tick."""
    given: dict[str, Any] = {"detector": f"test {cause}", "severity": "critical", "since_ns": at(index)}
    device = "" if row is None else f"{node}/{row}"
    given["record"] = f"{node}/{row}/{index}"
    return Symptom(cause=cause, strength=strength, node=node, device=device, time_ns=at(index), **(given | more))


def nodes(count: int, gpus: int = 8, workload: str = "train") -> list[Inventory]:
    """Nodes all of whose GPUs are one gang's, with NVLink between all."""
    found: list[Inventory] = []
    for n in range(count):
        held = [Allocation(workload=workload, replica=f"{n}-{i}", devices=(i,)) for i in range(gpus)]
        node = inventory(f"node-{n}", gpus, held)
        links = tuple(
            msgspec.structs.replace(
                d, links=tuple(Link(peer=j) for j in range(gpus) if j != i), pci_address=f"0000:{16 + i:x}:00.0"
            )
            for i, d in enumerate(node.devices)
        )
        found.append(msgspec.structs.replace(node, devices=links))
    return found


class IncidentHarness:
    """An incident manager and its cell."""

    def __init__(self, *records: Record) -> None:
        self.directory = Directory()
        self.know(spec("train", kind="training", max_replicas=64), *(records or nodes(4)))
        self.manager = IncidentManager(CELL, HEALTH, self.directory)

    def know(self, *records: Record) -> None:
        for record in records:
            self.directory.apply(record)

    def at(self, index: int, *symptoms: Symptom) -> list[Incident]:
        """Incidents published in a tick with these symptoms."""
        self.manager.ingest(tick(index), symptoms)
        return list(self.manager.records(tick(index)))

    def open(self) -> list[Incident]:
        """All open incidents as they would be published now."""
        copy = IncidentManager(
            CELL, HEALTH, self.directory, unpack_struct(pack_struct(self.manager.state), IncidentState)
        )
        for incident in copy.state.incidents.values():
            incident.dirty = True
        return list(copy.records(tick(max(1, self._last()))))

    def _last(self) -> int:
        return (
            max((incident.seen_ns for incident in self.manager.state.incidents.values()), default=START_NS) // PERIOD_NS
            - FIRST
        )

    def restart(self) -> None:
        """Restore the manager from a snapshot of its state."""
        self.manager = IncidentManager(
            CELL, HEALTH, self.directory, unpack_struct(pack_struct(self.manager.state), IncidentState)
        )


def silence(index: int, lasts: int, **more: Any) -> Silence:
    return Silence(
        cell=CELL, time_ns=at(index), by="ann", name=more.pop("name", "maintenance"), starts_ns=at(index),
        ends_ns=at(index + lasts), **more,
    )  # fmt: skip


def label(incident: str, index: int, cause: Cause, true: bool, model: str = "h100") -> Label:
    return Label(cell=CELL, time_ns=at(index), by="ann", incident=incident, cause=cause, true=true, model=model)


def moved(index: int, node: str, row: int) -> Migrate:
    return Migrate(
        id=f"move-{index}", target=f"{CELL}/train", cell=CELL, workload="train", time_ns=at(index),
        expires_ns=at(index + 60), reason="r", confidence=0.9, policy="p", replica=f"{node[-1]}-{row}",
        from_node=node, from_device=f"{node}/{row}",
    )  # fmt: skip


def scaled(index: int, workload: str = "train") -> Scale:
    return Scale(
        id=f"scale-{index}", target=f"{CELL}/{workload}", cell=CELL, workload=workload, time_ns=at(index),
        expires_ns=at(index + 60), reason="r", confidence=0.9, policy="p", replicas=3, replicas_before=2,
    )  # fmt: skip
