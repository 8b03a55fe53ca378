"""The Kafka side of a run, for as long as the topics stay the same."""

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
from flyball_actuators.ledger import CellGrants, OutcomeIndex, OutcomeLog
from flyball_actuators.outbox import Delivered, Outbox
from flyball_actuators.world import PowerLimits, WorldReader, WorldTables
from flyball_contracts.codec import record_message
from flyball_contracts.config import KafkaConfig
from flyball_contracts.kafka import Settings, consumer_settings, producer_settings
from flyball_contracts.records import AnyDecision, Outcome, PlatformStatus, Pool, Stop, WorkloadSpec
from flyball_contracts.topics import CONTROLS, INVENTORY, WORKLOADS

_LOG = logging.getLogger(__name__)
SOURCE = "/actuator"
CLIENT = "flyball-actuator"
SESSION_MS = 6_000  # a broker refuses less; a member that was killed is replaced this long afterwards
HEARTBEAT_MS = 1_000
_MS = 1000.0


def instance_name() -> str:
    """A process name that is never reused: host, process id and four random bytes."""
    return f"{socket.gethostname()}/{os.getpid()}/{os.urandom(4).hex()}"


def reading(kafka: KafkaConfig, group: str) -> Settings:
    """Consumer settings."""
    settings = consumer_settings(kafka.bootstrap, group=group, client_id=CLIENT)
    return {
        **settings,
        "session.timeout.ms": SESSION_MS,
        "heartbeat.interval.ms": HEARTBEAT_MS,
        "partition.assignment.strategy": "cooperative-sticky",  # partitions that stay are not interrupted
        "queued.max.messages.kbytes": 4096,
        **kafka.client,
    }


class Session:
    """The world, the outcome logs, the outbox, and the lease that proves group membership.

    ``log`` follows the partitions of this process, ``all`` every partition, for what other actuators did in the same
    cells. ``power_limits`` is a file that keeps the largest power limits of GPUs over a restart, if any.
    """

    def __init__(
        self, kafka: KafkaConfig, group: str, instance: str, stop: Event, power_limits: Path | None = None
    ) -> None:
        settings = reading(kafka, group)
        self.instance = instance
        self.lease = Lease(float(settings["session.timeout.ms"]) / _MS)
        self.log = OutcomeLog(settings, OutcomeIndex())
        self.all = OutcomeLog(settings, CellGrants())
        self.outbox = Outbox(
            producer_settings(kafka.bootstrap, client_id=CLIENT, linger_ms=0, portable=True, extra=kafka.client),
            self.lease.length_s,
        )
        self._tables = WorldTables(PowerLimits(power_limits))
        self._world = WorldReader(settings, kafka.bootstrap, self._tables, (WORKLOADS, INVENTORY))
        self._orders = WorldReader(settings, kafka.bootstrap, self._tables, (CONTROLS,))  # any thread may read them
        self._stop = stop
        self._followed = 0

    def start(self) -> None:
        """Read the topics of the world to their ends; :class:`TransportError` if the broker does not answer."""
        self._world.start(self._stop)
        self._orders.start(self._stop)

    def follow_all(self, partitions: int, since_ms: int) -> None:
        """Read all outcomes from ``since_ms`` on; ``KafkaException`` if the broker does not answer."""
        for partition in range(self._followed, partitions):
            self.all.follow(partition, since_ms)
            self._followed = partition + 1

    @property
    def all_read(self) -> bool:
        """Whether all outcomes that existed when they were first followed have been read."""
        return all(self.all.read(partition) for partition in range(self._followed))

    def drain(self) -> None:
        """Handle what has arrived on all topics except the decisions."""
        self._world.drain()
        self._orders.drain()
        self.log.drain()
        self.all.drain()
        self.outbox.step(again=self.lease.valid())

    def publish(self, partition: int, outcome: Outcome, then: Delivered | None = None) -> None:
        """Publish an outcome to the partition of the same number as its decision's."""
        self.outbox.put(record_message(outcome, SOURCE)._replace(partition=partition), then)

    def world(self, stop: str) -> World:
        """The world for the guard; ``stop`` is the kill switch's reason, empty while it is off. Thread-safe."""
        return self._tables.view(stop)

    def read_world(self) -> None:
        """Read what has arrived about the world and from other actuators until now; thread-safe."""
        self._world.drain()
        self._orders.drain()
        self.all.drain()

    @property
    def stops(self) -> Collection[Stop]:
        """Stops that people have ordered until now; thread-safe."""
        self._orders.drain()
        return self._tables.stops

    @property
    def stops_read(self) -> Mapping[int, int]:
        """Offset of the next order of each partition; thread-safe."""
        return self._orders.positions

    def replicas(self, cell: str, workload: str) -> Mapping[str, str]:
        """Node of each replica of a workload, as the inventories show them."""
        return self._tables.replicas(cell, workload)

    def busy(self, cell: str) -> frozenset[str]:
        """Nodes of a cell with replicas on them, as the inventories show them."""
        return self._tables.busy(cell)

    def declared(self, workload: str) -> WorkloadSpec | None:
        """Specification of a workload, removed or not; ``None`` if it has none, or if its cell is stopped."""
        spec = self._tables.declared(workload)
        halted = spec is not None and any(fnmatchcase(spec.cell, stop.cell) for stop in self._tables.stops)
        return None if halted else spec

    def declare(self, pools: Iterable[Pool]) -> None:
        """Publish the pools that may be scaled."""
        for pool in pools:
            self.outbox.put(record_message(pool, SOURCE))

    def report(self, status: PlatformStatus) -> None:
        """Publish whether a platform answers."""
        self.outbox.put(record_message(status, SOURCE))

    def refresh(self) -> None:
        """Read the latest workloads and inventories before a target counts as unknown."""
        try:
            self._world.catch_up(self._stop)
        except KafkaException as error:
            _LOG.warning("workloads and inventories could not be brought up to date: %s", error.args[0].str())

    def usd_per_gpu_hour(self, decision: AnyDecision) -> float | None:
        """Price of a GPU of the decision's workload, in USD per hour; ``None`` if no inventory has one."""
        return self._tables.usd_per_gpu_hour(decision.cell, decision.workload)

    @property
    def unreadable(self) -> int:
        """Workloads, inventories, orders and outcomes that could not be decoded."""
        return self._world.undecodable + self._orders.undecodable + self.log.undecodable

    def close(self) -> None:
        """Close all clients."""
        self._world.close()
        self._orders.close()
        self.log.close()
        self.all.close()
        self.outbox.close()
