"""What the steps of a decision need of Kafka, for as long as the topics stay the same."""

import logging
import os
import socket
from collections.abc import Collection, Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from threading import Event

from confluent_kafka import KafkaException

from flyball_actuators.guard import World
from flyball_actuators.lease import Lease
from flyball_actuators.ledger import Book, CellGrants, OutcomeLog
from flyball_actuators.outbox import Delivered, Outbox
from flyball_actuators.world import PowerLimits, WorldReader, WorldTables
from flyball_contracts.codec import record_message
from flyball_contracts.config import KafkaConfig
from flyball_contracts.kafka import Settings, consumer_settings, producer_settings
from flyball_contracts.records import AnyDecision, Outcome, Pool, Stop, WorkloadSpec
from flyball_contracts.topics import CONTROLS, INVENTORY, WORKLOADS

_LOG = logging.getLogger(__name__)
SOURCE = "/actuator"
CLIENT = "flyball-actuator"
SESSION_MS = 6_000  # a broker refuses less; a member that was killed is replaced this long afterwards
HEARTBEAT_MS = 1_000
_MS = 1000.0


def instance_name() -> str:
    """A name that no other process has had: host, process and four random bytes."""
    return f"{socket.gethostname()}/{os.getpid()}/{os.urandom(4).hex()}"


def reading(kafka: KafkaConfig, group: str) -> Settings:
    """Settings of the clients that read."""
    settings = consumer_settings(kafka.bootstrap, group=group, client_id=CLIENT)
    return {
        **settings,
        "session.timeout.ms": SESSION_MS,
        "heartbeat.interval.ms": HEARTBEAT_MS,
        "partition.assignment.strategy": "cooperative-sticky",  # what stays goes on undisturbed
        "queued.max.messages.kbytes": 4096,
        **kafka.client,
    }


class Session:
    """The world, the logs of outcomes, the way out, and the proof that this process may speak.

    ``log`` follows the partitions that are ours, and ``all`` every partition, for what others did to the same cells.
    ``power_limits`` is the file that keeps the largest of GPUs over a restart, if any.
    """

    def __init__(
        self, kafka: KafkaConfig, group: str, instance: str, stop: Event, power_limits: Path | None = None
    ) -> None:
        settings = reading(kafka, group)
        self.instance = instance
        self.lease = Lease(float(settings["session.timeout.ms"]) / _MS)
        self.log = OutcomeLog(settings, Book())
        self.all = OutcomeLog(settings, CellGrants())
        self.outbox = Outbox(
            producer_settings(kafka.bootstrap, client_id=CLIENT, linger_ms=0, portable=True, extra=kafka.client),
            self.lease.length_s,
        )
        self._tables = WorldTables(PowerLimits(power_limits))
        self._world = WorldReader(settings, kafka.bootstrap, self._tables, (WORKLOADS, INVENTORY))
        self._orders = WorldReader(settings, kafka.bootstrap, self._tables, (CONTROLS,))  # any thread may look
        self._stop = stop
        self._followed = 0

    def start(self) -> None:
        """Read the topics of the world to their ends; :class:`TransportError` when the broker does not answer."""
        self._world.start(self._stop)
        self._orders.start(self._stop)

    def follow_all(self, partitions: int, since_ms: int) -> None:
        """Read all outcomes from ``since_ms`` on; ``KafkaException`` when the broker does not answer."""
        for partition in range(self._followed, partitions):
            self.all.follow(partition, since_ms)
            self._followed = partition + 1

    @property
    def all_read(self) -> bool:
        """Whether the outcomes that were there when they were first followed have been read."""
        return all(self.all.read(partition) for partition in range(self._followed))

    def drain(self) -> None:
        """Take in what has arrived on all topics but the decisions."""
        self._world.drain()
        self._orders.drain()
        self.log.drain()
        self.all.drain()
        self.outbox.step(again=self.lease.valid())

    def publish(self, partition: int, outcome: Outcome, then: Delivered | None = None) -> None:
        """Publish an outcome where the decision came from: the same partition of the outcomes."""
        self.outbox.put(record_message(outcome, SOURCE)._replace(partition=partition), then)

    def world(self, stop: str) -> World:
        """The world as the guard sees it; ``stop`` is why the kill switch is on, or empty."""
        return self._tables.view(stop)

    @property
    def stops(self) -> Collection[Stop]:
        """Stops that people have ordered up to now; other threads may ask."""
        self._orders.drain()
        return self._tables.stops

    def replicas(self, cell: str, workload: str) -> Mapping[str, str]:
        """Nodes of a workload's replicas, by replica, as the inventories show them."""
        return self._tables.replicas(cell, workload)

    def busy(self, cell: str) -> frozenset[str]:
        """Nodes of a cell on which something runs, as the inventories show them."""
        return self._tables.busy(cell)

    def declared(self, workload: str) -> WorkloadSpec | None:
        """What is declared of a workload, unless people have stopped its cell."""
        spec = self._tables.declared(workload)
        halted = spec is not None and any(fnmatchcase(spec.cell, stop.cell) for stop in self._tables.stops)
        return None if halted else spec

    def declare(self, pools: Iterable[Pool]) -> None:
        """Tell others which machines may be bought."""
        for pool in pools:
            self.outbox.put(record_message(pool, SOURCE))

    def refresh(self) -> None:
        """Bring the world up to date before a target counts as unknown."""
        try:
            self._world.catch_up(self._stop)
        except KafkaException as error:
            _LOG.warning("workloads and inventories could not be brought up to date: %s", error.args[0].str())

    def usd_per_gpu_hour(self, decision: AnyDecision) -> float | None:
        """What a GPU of the decision's workload costs, where inventories say."""
        return self._tables.usd_per_gpu_hour(decision.cell, decision.workload)

    @property
    def unreadable(self) -> int:
        """Workloads, inventories and outcomes that were passed over."""
        return self._world.undecodable + self._orders.undecodable + self.log.undecodable

    def close(self) -> None:
        """Let the broker go."""
        self._world.close()
        self._orders.close()
        self.log.close()
        self.all.close()
        self.outbox.close()
