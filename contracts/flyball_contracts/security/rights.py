"""Access rights on Kafka: one table for the access lists, the check at the start and the AsyncAPI document."""

from collections.abc import Iterator
from typing import Literal, NamedTuple

import msgspec

from flyball_contracts.config import Config
from flyball_contracts.topics import (
    CONTROLS,
    DEAD_LETTERS,
    DECISIONS,
    DEMAND,
    EVENTS,
    INCIDENTS,
    INSIGHTS,
    INVENTORY,
    OUTCOMES,
    POOLS,
    PROPOSALS,
    RESPONSES,
    SIGNALS,
    STATE,
    TELEMETRY,
    TOPICS,
    WORKLOADS,
    Topic,
)

Operation = Literal["Read", "Write", "Create", "Describe"]


class Right(NamedTuple):
    """One access right: an operation on a topic or a consumer group of this name."""

    operation: Operation
    resource: Literal["topic", "group"]
    name: str


class Role(msgspec.Struct, frozen=True):
    """A part of Flyball: the command that runs it, the topics it reads, writes and creates, and its consumer groups.

    No role needs a right on the cluster. Kafka gives Describe with Read and with Write.
    """

    command: str
    reads: tuple[Topic, ...] = ()
    writes: tuple[Topic, ...] = ()
    groups: tuple[str, ...] = ()
    creates: tuple[Topic, ...] = ()

    def rights(self) -> Iterator[Right]:
        """Yield each right that the role needs."""
        yield from (Right("Read", "topic", topic.name) for topic in self.reads)
        yield from (Right("Write", "topic", topic.name) for topic in self.writes)
        yield from (Right("Create", "topic", topic.name) for topic in self.creates)
        yield from (Right("Describe", "topic", topic.name) for topic in self.creates)
        yield from (Right("Read", "group", group) for group in self.groups)


def roles(config: Config) -> dict[str, Role]:
    """Return all roles by name, with the consumer groups of a configuration."""
    everything = tuple(TOPICS.values())
    return {
        "agent": Role("flyball agent", writes=(TELEMETRY, EVENTS, INVENTORY)),
        "owner": Role("flyball workloads", (WORKLOADS,), (WORKLOADS,), ("flyball-cli-workloads",)),
        "feed": Role("flyball feed", writes=(SIGNALS,)),
        "worker": Role(
            "flyball worker",
            (
                TELEMETRY,
                EVENTS,
                INVENTORY,
                WORKLOADS,
                POOLS,
                SIGNALS,
                DEMAND,
                PROPOSALS,
                OUTCOMES,
                RESPONSES,
                STATE,
            ),
            (DEMAND, INSIGHTS, PROPOSALS, DECISIONS, INCIDENTS, STATE, DEAD_LETTERS),
            (config.worker.app,),
        ),
        "actuator": Role(
            "flyball actuate",
            (DECISIONS, OUTCOMES, WORKLOADS, INVENTORY, CONTROLS),
            (OUTCOMES, POOLS, INSIGHTS, DEAD_LETTERS),
            (config.actuator.group,),
        ),
        "controller": Role(
            "flyball controller", (INVENTORY, WORKLOADS), (INVENTORY, WORKLOADS), ("flyball-controller",)
        ),
        "operator": Role(
            "flyball stop, resume, approve, controls",
            (CONTROLS, DECISIONS),
            (CONTROLS,),
            ("flyball-cli-controls", "flyball-explain"),
        ),
        "responder": Role(
            "flyball incidents",
            (INCIDENTS, RESPONSES),
            (RESPONSES,),
            ("flyball-explain", "flyball-incidents"),
        ),
        "remover": Role(
            "flyball nodes remove", (INVENTORY, TELEMETRY), (INVENTORY,), ("flyball-explain", "flyball-nodes")
        ),
        "notifier": Role("flyball incidents notify", (INCIDENTS,), (DEAD_LETTERS,), ("flyball-notify",)),
        "dashboard": Role(
            "flyball dashboard",
            tuple(topic for topic in everything if topic is not STATE),
            groups=("flyball-dashboard",),
        ),
        "recorder": Role("flyball record", everything, groups=("flyball-record",)),
        "sink": Role(
            "flyball sink",
            (TELEMETRY, DEMAND, INSIGHTS, DECISIONS, OUTCOMES, INVENTORY),
            (DEAD_LETTERS,),
            ("flyball-influx", "flyball-inventories"),
        ),
        "explain": Role("flyball explain", (DECISIONS, OUTCOMES, INSIGHTS, EVENTS), groups=("flyball-explain",)),
        "subscriber": Role(
            "your own programs",
            (EVENTS, INSIGHTS, DECISIONS, OUTCOMES, INCIDENTS, DEAD_LETTERS),
            groups=("flyball-subscriber",),
        ),
        "administrator": Role("flyball topics --create", groups=("flyball-topics",), creates=everything),
    }
