"""Decisions of a test, each with an id of its own unless it is given one."""

from itertools import count
from typing import Any

from flyball_contracts.config import FleetConfig
from flyball_contracts.records import Migrate, Preempt, Scale

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
