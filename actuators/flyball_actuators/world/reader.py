"""The actuator's own picture of the world, read from the compacted topics."""

import logging
from collections.abc import Mapping
from threading import Event

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from flyball_actuators.guard import NodeInfo, Placed, World
from flyball_actuators.messages import END_OF_PARTITION, headers_of
from flyball_actuators.world.power_limits import PowerLimits
from flyball_contracts.codec import decode_record
from flyball_contracts.errors import DecodeError, TransportError
from flyball_contracts.kafka import Place, Settings, bounds, list_topics, open_consumer
from flyball_contracts.records import Inventory, WorkloadSpec
from flyball_contracts.topics import INVENTORY, WORKLOADS

_LOG = logging.getLogger(__name__)
_ANSWER_S = 10.0
_BATCH = 500


def partitions_of(consumer: Consumer, topic: str, stop: Event) -> list[int]:
    """Partitions of a topic; :class:`TransportError` when it does not exist, ``KafkaException`` without a broker."""
    found = list_topics(consumer, _ANSWER_S, stop, topic).topics[topic]
    if found.error is not None:
        raise TransportError(f"topic {topic}: {found.error.str()}; create the topics with: flyball topics")
    return sorted(found.partitions)


class WorldReader:
    """Reads every partition of the workload and inventory topics; it joins no group and commits nothing."""

    def __init__(self, settings: Settings, bootstrap: str) -> None:
        self.undecodable = 0
        self._bootstrap = bootstrap
        self._consumer = open_consumer({**settings, "enable.partition.eof": True}, _LOG, "workloads and inventories")
        self._workloads: dict[str, WorkloadSpec] = {}
        self._inventories: dict[str, Inventory] = {}
        self._nodes: dict[str, NodeInfo] = {}
        self._placed: Placed | None = {}
        self._limits = PowerLimits()
        self._positions: dict[Place, int] = {}

    def start(self, stop: Event) -> None:
        """Assign all partitions and read to their ends; :class:`TransportError` when the broker does not answer."""
        try:
            parts = [
                (topic.name, partition)
                for topic in (WORKLOADS, INVENTORY)
                for partition in partitions_of(self._consumer, topic.name, stop)
            ]
            self._consumer.assign([TopicPartition(name, p, 0) for name, p in parts])
            self._positions = dict.fromkeys(parts, 0)
            self.catch_up(stop)
        except KafkaException as error:
            raise TransportError(
                f"{self._bootstrap}: workloads and inventories cannot be read: {error.args[0].str()}; "
                "is a broker there?"
            ) from error

    def catch_up(self, stop: Event) -> None:
        """Read all that was on the topics when this was called; ``KafkaException`` when they cannot be asked."""
        found = bounds(self._consumer, self._positions, _ANSWER_S)
        for place, (first, _) in found.items():
            self._positions[place] = max(self._positions[place], first)
        while not stop.is_set() and any(self._positions[place] < end for place, (_, end) in found.items()):
            self.drain(0.1)

    def drain(self, wait_s: float = 0.0) -> None:
        """Take in what has arrived."""
        while True:
            messages = self._consumer.consume(_BATCH, wait_s)
            for message in messages:
                self._take(message)
            if len(messages) < _BATCH:
                return

    def view(self, stop: str) -> World:
        """The world as the guard sees it; ``stop`` is why the kill switch is on, or empty."""
        return World(self._workloads, self._nodes, self._where(), stop, self._limits.by_workload(self._inventories))

    def replicas(self, cell: str, workload: str) -> Mapping[str, str]:
        """Nodes of a workload's replicas, by replica; other threads may ask, for what is given is never changed."""
        return self._where().get(cell, {}).get(workload, {})

    def usd_per_gpu_hour(self, cell: str, workload: str) -> float | None:
        """What a GPU costs on the nodes where a workload runs, else on all of its cell; ``None`` where nobody says."""
        homes = set(self.replicas(cell, workload).values())
        for names in (homes, self._inventories):
            known = [
                (node.price_usd_per_hour, sum(device.parent is None for device in node.devices))
                for name in names
                if (node := self._inventories.get(name)) is not None
                and node.cell == cell
                and node.price_usd_per_hour is not None
            ]
            gpus = sum(count for _, count in known)
            if gpus:
                return sum(price for price, _ in known) / gpus
        return None

    def close(self) -> None:
        """Let the broker go."""
        self._consumer.close()

    def _take(self, message: Message) -> None:
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        error = message.error()
        if topic is None or partition is None or offset is None:
            _LOG.warning("reading workloads and inventories: %s", error)
            return
        if error is not None:
            if error.code() == END_OF_PARTITION:  # compaction may have removed the last records before it
                self._positions[topic, partition] = max(offset, self._positions[topic, partition])
            else:
                _LOG.warning("reading %s/%d: %s", topic, partition, error)
            return
        self._positions[topic, partition] = offset + 1
        key, value = (message.key() or b"").decode("utf-8", "replace"), message.value()
        if value is None:
            self._forget(topic, key)
            return
        try:
            record = decode_record(topic, value, headers_of(message))
        except DecodeError as error:
            self.undecodable += 1
            _LOG.warning("%s/%d@%d is passed over: %s", topic, partition, offset, error)
            return
        if isinstance(record, WorkloadSpec):
            self._workloads[record.workload] = record
        elif isinstance(record, Inventory):
            self._inventories[record.node] = record
            self._nodes[record.node] = NodeInfo(record.cell, record.schedulable)
            self._limits.see(record)
            self._placed = None

    def _forget(self, topic: str, key: str) -> None:
        if topic == WORKLOADS.name:
            self._workloads.pop(key, None)
        else:
            self._inventories.pop(key, None)
            self._nodes.pop(key, None)
            self._limits.changed()
            self._placed = None

    def _where(self) -> Placed:
        placed = self._placed
        if placed is None:  # a replica that spans nodes counts once
            made: dict[str, dict[str, dict[str, str]]] = {}
            for node in tuple(self._inventories.values()):
                for part in node.allocations:
                    made.setdefault(node.cell, {}).setdefault(part.workload, {}).setdefault(part.replica, node.node)
            placed = self._placed = made
        return placed
