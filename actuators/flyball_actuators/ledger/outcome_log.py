"""Reads the outcomes of some partitions, from a given time on."""

import logging
from threading import Lock
from typing import Generic, NamedTuple, Protocol, TypeVar

from confluent_kafka import KafkaException, Message, TopicPartition

from flyball_actuators.messages import END_OF_PARTITION, headers_of
from flyball_contracts.codec import decode_record
from flyball_contracts.errors import DecodeError
from flyball_contracts.kafka import Settings, bounds, open_consumer
from flyball_contracts.records import Outcome
from flyball_contracts.topics import OUTCOMES

_LOG = logging.getLogger(__name__)
_ANSWER_S = 5.0
_PATIENCE_S = 1.0  # the caller tries again
_BATCH = 500
_WHOLE = 20_000  # offsets; a log that short is read whole, because not every broker finds offsets by time


class _Part(NamedTuple):
    """Next offset of a partition, and the offset up to which it must be read at first."""

    at: int
    until: int


class Listener(Protocol):
    """Receives the outcomes that are read."""

    def add(self, partition: int, outcome: Outcome, at_ms: int) -> None:
        """Receive the next outcome of a partition; ``at_ms`` is when it was sent."""
        ...

    def forget(self, partition: int) -> None:
        """Note that a partition is no longer followed."""
        ...


B = TypeVar("B", bound=Listener)


class OutcomeLog(Generic[B]):
    """Reads outcome partitions into an ``index``; joins no group and commits nothing.

    Any thread may call :meth:`drain`; it reads nothing once the log is closed.
    """

    def __init__(self, settings: Settings, index: B) -> None:
        self.index = index
        self.undecodable = 0
        self._consumer = open_consumer({**settings, "enable.partition.eof": True}, _LOG, "outcomes")
        self._parts: dict[int, _Part] = {}
        self._lock, self._closed = Lock(), False

    def follow(self, partition: int, since_ms: int) -> None:
        """Read a partition from ``since_ms`` on; ``KafkaException`` if the broker does not answer."""
        if partition in self._parts:
            return
        place = OUTCOMES.name, partition
        low, high = bounds(self._consumer, [place], _PATIENCE_S)[place]
        start = low
        if high - low > _WHOLE:
            (found,) = self._consumer.offsets_for_times(
                [TopicPartition(OUTCOMES.name, partition, since_ms)], timeout=_ANSWER_S
            )
            if found.error is not None:
                raise KafkaException(found.error)
            start = found.offset if found.offset >= 0 else high
        with self._lock:
            self._parts[partition] = _Part(start, high)
            self._consumer.incremental_assign([TopicPartition(OUTCOMES.name, partition, start)])

    def read(self, partition: int, offset: int | None = None) -> bool:
        """Whether a partition was read past ``offset``, or to its end as of when it was first followed."""
        part = self._parts.get(partition)
        return part is not None and part.at >= (part.until if offset is None else offset + 1)

    def position(self) -> dict[int, int]:
        """Offset of the next outcome of each partition."""
        return {partition: part.at for partition, part in self._parts.items()}

    def drain(self) -> None:
        """Read all outcomes that have arrived."""
        with self._lock:
            while self._parts and not self._closed:
                messages = self._consumer.consume(_BATCH, 0)
                for message in messages:
                    self._take(message)
                if len(messages) < _BATCH:
                    return

    def forget(self, partition: int) -> None:
        """Stop following a partition."""
        with self._lock:
            if self._parts.pop(partition, None) is not None:
                self._consumer.incremental_unassign([TopicPartition(OUTCOMES.name, partition)])
            self.index.forget(partition)

    def close(self) -> None:
        """Close the consumer once no thread reads."""
        with self._lock:
            self._closed = True
            self._consumer.close()

    def _take(self, message: Message) -> None:
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        part = None if partition is None else self._parts.get(partition)
        error = message.error()
        if topic is None or partition is None or offset is None or part is None:
            if error is not None:
                _LOG.warning("reading outcomes: %s", error)
            return
        if error is not None:
            if error.code() == END_OF_PARTITION:
                self._parts[partition] = part._replace(at=max(offset, part.at))
            else:
                _LOG.warning("reading %s/%d: %s", topic, partition, error)
            return
        self._parts[partition] = part._replace(at=offset + 1)
        try:
            record = decode_record(topic, message.value(), headers_of(message))
        except DecodeError as bad:
            self.undecodable += 1
            _LOG.warning("%s/%d@%d is passed over: %s", topic, partition, offset, bad)
            return
        if isinstance(record, Outcome):
            self.index.add(partition, record, message.timestamp()[1])
