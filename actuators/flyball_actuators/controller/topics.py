"""State of the inventory and workload topics, the publisher of each record, and a producer for new ones."""

import logging
import time
from collections.abc import Mapping, Sequence
from threading import Event
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message as KafkaMessage, TopicPartition

from flyball_actuators.messages import END_OF_PARTITION, headers_of
from flyball_actuators.world.reader import partitions_of
from flyball_contracts.cloudevents import header
from flyball_contracts.codec import Message, decode_record, record_message
from flyball_contracts.config import KafkaConfig
from flyball_contracts.errors import DecodeError, TransportError
from flyball_contracts.kafka import Place, bounds, consumer_settings, open_consumer, open_producer, producer_settings
from flyball_contracts.kafka.topic_ids import TopicIds
from flyball_contracts.records import Inventory, WorkloadSpec
from flyball_contracts.tables import Tables
from flyball_contracts.topics import INVENTORY, WORKLOADS

_LOG = logging.getLogger(__name__)
CLIENT = "flyball-controller"
_ANSWER_S = 10.0
_BATCH = 500
CONTROLLERS = "/controller/"
"""Prefix of the source of controllers; an inventory from any other source is an agent's."""
Row = Inventory | WorkloadSpec
Key = tuple[str, str]
"""Topic and key."""


class Publisher(NamedTuple):
    """Source of the newest record of a key, and its time on the broker's clock."""

    source: str
    at_ns: int


class Topics:
    """Reads inventories and workloads from their start, and publishes; joins no group and commits nothing.

    ``agents_back`` are nodes whose agent reports again, with a record older than the controller's. :meth:`drain` raises
    :class:`TransportError` for a topic that was recreated (it has another id) or lost records at its end: the topic
    then lacks records that this process takes as published, and only a restart publishes them again.
    """

    def __init__(self, kafka: KafkaConfig, stop: Event) -> None:
        self.tables = Tables()
        self.publishers: dict[Key, Publisher] = {}
        self.agents_back: set[str] = set()
        settings = consumer_settings(kafka.bootstrap, group=CLIENT, client_id=CLIENT, extra=kafka.client)
        self._consumer = open_consumer({**settings, "enable.partition.eof": True}, _LOG, "inventories and workloads")
        self._producer = open_producer(
            producer_settings(kafka.bootstrap, client_id=CLIENT, delivery_timeout_s=_ANSWER_S, extra=kafka.client),
            _LOG,
            "inventories and workloads",
        )
        self._positions: dict[Place, int] = {}
        self._ids = TopicIds(kafka, (INVENTORY.name, WORKLOADS.name))
        self._first_ids: dict[str, str] = {}
        try:
            self._start(stop)
        except KafkaException as error:
            raise TransportError(
                f"{kafka.bootstrap}: inventories cannot be read: {error.args[0].str()}; is a broker there?"
            ) from error

    def drain(self, wait_s: float = 0.0) -> bool:
        """Apply all records that have arrived; return whether anything changed."""
        self._check_ids()
        changed_any = False
        while True:
            messages = self._consumer.consume(_BATCH, wait_s)
            for message in messages:
                changed_any |= self._handle(message)
            if len(messages) < _BATCH:
                return changed_any

    def publish(self, records: Sequence[Row], gone: Sequence[str], source: str) -> bool:
        """Send records, and tombstones for nodes; return whether all were acknowledged.

        Unacknowledged records are not applied, so the caller sees the difference again and repeats them.
        """
        waiting = len(records) + len(gone)

        def send(message: Message, row: Row | None) -> None:
            def delivered(error: KafkaError | None, written: KafkaMessage) -> None:
                nonlocal waiting
                if error is not None:
                    _LOG.warning("a record on %s was not delivered: %s; it is sent again", message.topic, error.str())
                    return
                waiting -= 1
                self._apply((message.topic, message.key.decode()), row, Publisher(source, _at_ns(written)))

            while True:
                try:
                    self._producer.produce(
                        message.topic,
                        key=message.key,
                        value=message.value or None,
                        headers=[*message.headers],
                        on_delivery=delivered,
                    )
                    return
                except BufferError:
                    self._producer.poll(0.2)

        for record in records:
            send(record_message(record, source), record)
        for node in gone:
            send(Message(INVENTORY.name, node.encode(), b"", []), None)
        ends_s = time.monotonic() + _ANSWER_S + 1.0
        while waiting and self._producer.flush(0.2) and time.monotonic() < ends_s:
            pass
        return waiting == 0

    def other_publisher(self, key: Key, source: str) -> str:
        """Source of a key's newest record; empty if it is ``source`` or there is none."""
        publisher = self.publishers.get(key)
        return "" if publisher is None or publisher.source == source else publisher.source

    def close(self) -> None:
        """Close consumer and producer."""
        self._ids.close()
        self._consumer.close()
        self._producer.flush(1.0)

    def _start(self, stop: Event) -> None:
        places = [
            (topic.name, partition)
            for topic in (INVENTORY, WORKLOADS)
            for partition in partitions_of(self._consumer, topic.name, stop)
        ]
        self._ids.wait_known()
        self._first_ids = dict(self._ids.now())
        found = bounds(self._consumer, places, _ANSWER_S)
        self._consumer.assign([TopicPartition(*place, found[place].first) for place in places])
        self._positions = {place: found[place].first for place in places}
        while not stop.is_set() and any(self._positions[place] < end for place, (_, end) in found.items()):
            self.drain(0.1)

    def _check_ids(self) -> None:
        for name, topic_id in self._ids.now().items():
            if self._first_ids.setdefault(name, topic_id) != topic_id:
                raise TransportError(f"topic {name} was made again: start again, and all is published again")

    def _handle(self, message: KafkaMessage) -> bool:
        topic, partition, offset, error = message.topic(), message.partition(), message.offset(), message.error()
        if topic is None or partition is None or offset is None:
            _LOG.warning("reading inventories and workloads: %s", error)
            return False
        at_end = error is not None and error.code() == END_OF_PARTITION
        expected = self._positions[topic, partition]
        if (error is None or at_end) and offset < expected:
            raise TransportError(
                f"{topic}/{partition} was made again or lost messages ({offset} came where {expected} was expected): "
                "start again, and all is published again"
            )
        if error is not None:
            if at_end:  # compaction may have removed the last records before it
                self._positions[topic, partition] = offset
            else:
                _LOG.warning("reading %s/%d: %s", topic, partition, error.str())
            return False
        self._positions[topic, partition] = offset + 1
        key, value, headers = (message.key() or b"").decode("utf-8", "replace"), message.value(), headers_of(message)
        try:
            record = None if value is None else decode_record(topic, value, headers)
        except DecodeError as problem:
            _LOG.warning("%s/%d@%d is passed over: %s", topic, partition, offset, problem)
            return False
        if record is not None and not isinstance(record, Inventory | WorkloadSpec):
            return False
        return self._apply((topic, key), record, Publisher(header(headers, "ce_source") or "", _at_ns(message)))

    def _apply(self, key: Key, record: Row | None, publisher: Publisher) -> bool:
        """Apply a record or tombstone; return whether a table changed."""
        topic, name = key
        if record is None:
            self.publishers.pop(key, None)
            self.agents_back.discard(name)
            return self.tables.forget(topic, name)
        changed = self.tables.apply(record)
        rows: Mapping[str, Row] = self.tables.inventories if topic == INVENTORY.name else self.tables.workloads
        if changed or rows.get(name) == record:
            self.publishers[key] = publisher
            self.agents_back.discard(name)
        elif topic == INVENTORY.name and not publisher.source.startswith(CONTROLLERS):
            self.agents_back.add(name)
        return changed


def _at_ns(message: KafkaMessage) -> int:
    return int(message.timestamp()[1]) * 1_000_000
