"""Decisions of a test, each with an id of its own unless it is given one, and the messages of a fleet by kind."""

from itertools import count
from typing import Any, NamedTuple

from flyball_contracts.codec import Message, decode_message
from flyball_contracts.config import FleetConfig
from flyball_contracts.frame import Frame
from flyball_contracts.records import Inventory, Migrate, NodeEvent, Preempt, Scale
from flyball_simulator import Fleet

START_NS = 1_750_000_000_000_000_000
CONFIG = FleetConfig()
_numbers = count()


def _fields(workload: str, more: dict[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "id": f"order-{next(_numbers)}",
        "cell": "fleet",
        "time_ns": START_NS,
        "expires_ns": START_NS + 10**12,
        "reason": "",
        "confidence": 1.0,
        "policy": "test",
        "target": f"fleet/{workload}",
        "workload": workload,
    }
    return fields | more


def scale(workload: str, replicas: int, **more: Any) -> Scale:
    return Scale(replicas=replicas, **_fields(workload, {"replicas_before": 0} | more))


def preempt(workload: str, replicas: int, **more: Any) -> Preempt:
    return Preempt(replicas=replicas, **_fields(workload, {"replicas_before": 0} | more))


def migrate(workload: str, replica: str, **more: Any) -> Migrate:
    return Migrate(replica=replica, **_fields(workload, {"from_node": "", "from_device": ""} | more))


class Heard(NamedTuple):
    """What came of one kind, in order."""

    frames: list[Frame]
    events: list[NodeEvent]
    inventories: list[Inventory]

    def of(self, schema: int, node: str) -> list[Frame]:
        return [f for f in self.frames if f.schema == schema and f.node == node]


def heard(messages: list[Message]) -> Heard:
    found = Heard([], [], [])
    for m in messages:
        record = decode_message(m.topic, m.value, list(m.headers))
        for kind, kept in zip((Frame, NodeEvent, Inventory), found, strict=True):
            if isinstance(record, kind):
                kept.append(record)  # pyright: ignore[reportArgumentType]
    return found


def run(fleet: Fleet, ticks: int) -> Heard:
    return heard([m for _ in range(ticks) for m in fleet.tick(fleet.plant.index)])
