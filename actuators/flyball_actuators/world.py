"""The actuator's own picture of the world, read from the compacted topics."""

import logging
from collections import Counter
from collections.abc import Container, Mapping
from threading import Event

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from flyball_actuators.guard import NodeInfo, World
from flyball_actuators.messages import headers_of
from flyball_contracts.codec import decode_record
from flyball_contracts.errors import DecodeError, TransportError
from flyball_contracts.kafka import Settings
from flyball_contracts.kafka_log import ClientLog
from flyball_contracts.records import Inventory, WorkloadSpec
from flyball_contracts.topics import INVENTORY, WORKLOADS

_LOG = logging.getLogger(__name__)
_ANSWER_S = 10.0
_BATCH = 500
_END_OF_PARTITION = -191  # librdkafka's RD_KAFKA_RESP_ERR__PARTITION_EOF


def partitions_of(consumer: Consumer, topic: str) -> list[int]:
    """Partitions of a topic; :class:`TransportError` when it does not exist, ``KafkaException`` without a broker."""
    found = consumer.list_topics(topic, timeout=_ANSWER_S).topics[topic]
    if found.error is not None:
        raise TransportError(f"topic {topic}: {found.error.str()}; create the topics with: flyball topics")
    return sorted(found.partitions)


class WorldReader:
    """Reads every partition of the workload and inventory topics; it joins no group and commits nothing."""

    def __init__(self, settings: Settings, bootstrap: str) -> None:
        self.undecodable = 0
        self._bootstrap = bootstrap
        told = ClientLog(_LOG, "workloads and inventories", bootstrap)
        self._consumer = Consumer({**settings, "enable.partition.eof": True, "error_cb": told.on_error}, logger=told)
        self._workloads: dict[str, WorkloadSpec] = {}
        self._inventories: dict[str, Inventory] = {}
        self._nodes: dict[str, NodeInfo] = {}
        self._replicas: dict[str, Counter[str]] | None = None
        self._positions: dict[tuple[str, int], int] = {}

    def start(self, stop: Event) -> None:
        """Assign all partitions and read to their ends; :class:`TransportError` when the broker does not answer."""
        try:
            parts = [
                (topic.name, partition)
                for topic in (WORKLOADS, INVENTORY)
                for partition in partitions_of(self._consumer, topic.name)
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
        ends: dict[tuple[str, int], int] = {}
        for (topic, partition), position in self._positions.items():
            low, high = self._consumer.get_watermark_offsets(TopicPartition(topic, partition), _ANSWER_S, cached=False)
            self._positions[topic, partition] = max(position, low)
            ends[topic, partition] = high
        while not stop.is_set() and any(self._positions[part] < end for part, end in ends.items()):
            self.drain(0.1)

    def drain(self, wait_s: float = 0.0) -> None:
        """Take in what has arrived."""
        while True:
            messages = self._consumer.consume(_BATCH, wait_s)
            for message in messages:
                self._take(message)
            if len(messages) < _BATCH:
                return

    def view(self, handled: Container[str], stop: str) -> World:
        """The world as the guard sees it."""
        return World(self._workloads, self._nodes, self._counted(), handled, stop)

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
            if error.code() == _END_OF_PARTITION:  # compaction may have removed the last records before it
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
            self._replicas = None

    def _forget(self, topic: str, key: str) -> None:
        if topic == WORKLOADS.name:
            self._workloads.pop(key, None)
        else:
            self._inventories.pop(key, None)
            self._nodes.pop(key, None)
            self._replicas = None

    def _counted(self) -> Mapping[str, Mapping[str, int]]:
        if self._replicas is None:  # a replica that spans nodes counts once
            running = {
                (node.cell, part.workload, part.replica)
                for node in self._inventories.values()
                for part in node.allocations
            }
            self._replicas = {}
            for cell, workload, _ in running:
                self._replicas.setdefault(cell, Counter())[workload] += 1
        return self._replicas
