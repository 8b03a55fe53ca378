"""Reads the compacted topics of workloads, inventories and orders."""

import logging
import time
from collections.abc import Mapping, Sequence
from threading import Event, Lock

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from flyball_actuators.messages import END_OF_PARTITION, headers_of
from flyball_actuators.world.tables import WorldTables
from flyball_contracts.codec import decode_record
from flyball_contracts.errors import DecodeError, TransportError
from flyball_contracts.kafka import Bounds, Place, Settings, bounds, list_topics, open_consumer
from flyball_contracts.topics import Topic

_LOG = logging.getLogger(__name__)
_ANSWER_S = 10.0
_BATCH = 500


def partitions_of(consumer: Consumer, topic: str, stop: Event) -> list[int]:
    """Partitions of a topic; :class:`TransportError` if it does not exist, ``KafkaException`` without a broker."""
    found = list_topics(consumer, _ANSWER_S, stop, topic).topics[topic]
    if found.error is not None:
        raise TransportError(f"topic {topic}: {found.error.str()}; create the topics with: flyball topics")
    return sorted(found.partitions)


class WorldReader:
    """Reads every partition of some topics into the tables; joins no group and commits nothing."""

    def __init__(self, settings: Settings, bootstrap: str, tables: WorldTables, topics: Sequence[Topic]) -> None:
        self.undecodable = 0
        self._bootstrap, self._tables, self._topics = bootstrap, tables, topics
        self._what = " and ".join(topic.name for topic in topics)
        self._lock, self._closed = Lock(), False
        self._consumer = open_consumer({**settings, "enable.partition.eof": True}, _LOG, self._what)
        self._positions: dict[Place, int] = {}

    def start(self, stop: Event) -> None:
        """Assign all partitions and read to their ends; :class:`TransportError` if the broker does not answer."""
        try:
            parts = [
                (topic.name, partition)
                for topic in self._topics
                for partition in partitions_of(self._consumer, topic.name, stop)
            ]
            self._consumer.assign([TopicPartition(name, p, 0) for name, p in parts])
            self._positions = dict.fromkeys(parts, 0)
            self.catch_up(stop)
        except KafkaException as error:
            raise TransportError(
                f"{self._bootstrap}: {self._what} cannot be read: {error.args[0].str()}; is a broker there?"
            ) from error

    def catch_up(self, stop: Event) -> None:
        """Read everything that was on the topics at the call.

        Raises ``KafkaException`` if the broker does not answer, or delivers no further record for ten seconds.
        """
        found = bounds(self._consumer, self._positions, _ANSWER_S)
        with self._lock:
            for place, (first, _) in found.items():
                self._positions[place] = max(self._positions[place], first)
        missing, since_s = self._missing(found), time.monotonic()
        while missing and not stop.is_set():
            self.drain(0.1)
            left, now_s = self._missing(found), time.monotonic()
            if left < missing:
                missing, since_s = left, now_s
            elif now_s - since_s > _ANSWER_S:
                what = f"{missing} records were not delivered within {_ANSWER_S:g} s"
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, what))

    def _missing(self, found: Mapping[Place, Bounds]) -> int:
        """Records up to these ends that were not read yet; what has come since does not count."""
        return sum(max(0, end - self._positions[place]) for place, (_, end) in found.items())

    def drain(self, wait_s: float = 0.0) -> None:
        """Read all records that have arrived, none once the reader is closed; thread-safe."""
        with self._lock:
            while not self._closed:
                messages = self._consumer.consume(_BATCH, wait_s)
                for message in messages:
                    self._take(message)
                if len(messages) < _BATCH:
                    return

    @property
    def positions(self) -> dict[int, int]:
        """Offset of the next record of each partition, for a reader of one topic; thread-safe."""
        with self._lock:
            return {partition: position for (_, partition), position in self._positions.items()}

    def close(self) -> None:
        """Close the consumer once no thread reads; thread-safe."""
        with self._lock:
            self._closed = True
            self._consumer.close()

    def _take(self, message: Message) -> None:
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        error = message.error()
        if topic is None or partition is None or offset is None:
            _LOG.warning("reading the world: %s", error)
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
            self._tables.forget(topic, key)
            return
        try:
            record = decode_record(topic, value, headers_of(message))
        except DecodeError as error:
            self.undecodable += 1
            _LOG.warning("%s/%d@%d is passed over: %s", topic, partition, offset, error)
            return
        self._tables.take(record)
