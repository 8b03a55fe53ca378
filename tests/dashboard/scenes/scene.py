"""A fleet as the dashboard may see it: every kind of record, made from a seed, with fixed event times."""

from collections.abc import Iterable

from confluent_kafka import Producer
from tests.dashboard.scenes.accounts import accounts
from tests.dashboard.scenes.carbon import plans, signals
from tests.dashboard.scenes.decisions import cases, conditions, decisions, outcomes, troubles
from tests.dashboard.scenes.fleet import (
    CELL,
    NOW,
    T0,
    TICKS,
    Fleet,
    device_id,
    frames,
    inventories,
    node_name,
    specs,
    tick,
)
from tests.dashboard.scenes.work import capacities, demands, forecasts

from flyball_contracts.codec import Message, frame_message, record_message
from flyball_contracts.frame import Frame
from flyball_contracts.kafka import producer_settings
from flyball_contracts.records import Record
from flyball_contracts.records.commands.outcomes import Mode

__all__ = [
    "CELL",
    "NOW",
    "T0",
    "TICKS",
    "Fleet",
    "Item",
    "accounts",
    "decisions",
    "demands",
    "device_id",
    "forecasts",
    "frames",
    "inventories",
    "message_of",
    "node_name",
    "outcomes",
    "plans",
    "publish",
    "scene",
    "signals",
    "specs",
    "tick",
    "troubles",
]
Item = Record | Frame


def scene(fleet: Fleet | None = None, *, mode: Mode = "live", accounted: bool = True) -> list[Item]:
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
        *outcomes(made, mode),
        *cases(),
        *conditions(),
        *(accounts() if accounted else ()),
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
