"""Fetches the partitions that the consumer group assigned to this process with librdkafka.

Faust keeps the group: assignment, heartbeats, commits. Another client, which joins no group, fetches the messages: it
unpacks them outside Python's lock, while aiokafka does so in Python.
"""

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from confluent_kafka import TopicPartition
from faust.types import TP

from flyball_contracts.config import KafkaConfig
from flyball_contracts.kafka import consumer_settings, open_consumer
from flyball_contracts.topics import EVENTS
from flyball_streams.engine.lane import Incoming

log = logging.getLogger(__name__)
MOST = 2_000
"""Most messages of a fetch, and about the most of a step. In a backlog, larger steps would take long: the group removes
a member whose step takes too long, and a worker that joins would have to wait for it."""
WAIT_S = 0.2
PACE_S = 0.001
"""A burst ends after this time without messages: the frames of a tick come together."""
BURST_S = 0.02
"""A continuous stream is processed in steps of about this length: larger steps cost hardly more."""


class Fetched(NamedTuple):
    """Messages of some partitions, in their order; ``epoch`` counts the earlier calls of :meth:`Fetch.begin`.

    Partitions of events come first, so that no step has the frames of a fetch without its events.
    """

    epoch: int
    batches: dict[TP, list[Incoming]]


class Fetch:
    """Fetches assigned partitions; all but :meth:`highwater` must be called in one thread, where they may block."""

    def __init__(self, kafka: KafkaConfig, client_id: str, group: str) -> None:
        settings: dict[str, Any] = {
            # The group's name is for the broker's access lists: nothing joins it or commits here.
            **consumer_settings(kafka.bootstrap, group=group, client_id=client_id, extra=kafka.client),
            "max.partition.fetch.bytes": 4 * 1024 * 1024,
            "check.crcs": True,
        }
        self._consumer = open_consumer(settings, log, "source topics")
        self._epoch = 0
        self._held: set[TP] = set()

    def begin(self, places: Mapping[TP, int]) -> int:
        """Fetch only these partitions, from these offsets; earlier fetches are of an older epoch."""
        self._epoch += 1
        self.hold(set())
        self._consumer.assign([TopicPartition(tp.topic, tp.partition, offset) for tp, offset in places.items()])
        return self._epoch

    def hold(self, places: set[TP]) -> None:
        """Pause these partitions and resume all others."""
        if free := [TopicPartition(*tp) for tp in self._held - places]:
            self._consumer.resume(free)
        if held := [TopicPartition(*tp) for tp in places - self._held]:
            self._consumer.pause(held)
        self._held = set(places)

    def take(self, on_taken: Callable[[], object]) -> Fetched:
        """Wait briefly for messages and return those that came; errors of the broker are logged.

        ``on_taken`` is called once all of them are here, if there are any: table offsets that are read then include
        everything that these messages may refer to, however long the process was paused.
        """
        batches: dict[Any, list[Incoming]] = {}
        messages = self._consumer.consume(1, WAIT_S)
        until_s, more = time.monotonic() + BURST_S, bool(messages)
        while more and len(messages) < MOST and time.monotonic() < until_s:
            time.sleep(PACE_S)  # consume() would wait for the maximum number of messages
            rest = self._consumer.consume(MOST - len(messages), 0.0)
            messages += rest
            more = bool(rest)
        if messages:
            on_taken()
        for m in messages:
            error = m.error()
            if error is not None:
                log.warning("%s/%s: %s", m.topic(), m.partition(), error.str())
                continue
            message: Any = m  # its attributes are None only if it has an error
            topic, partition = message.topic(), message.partition()
            batch = batches.get((topic, partition))  # equals a TP, which takes longer to make
            if batch is None:
                batch = batches[TP(topic, partition)] = []
            headers, (_, log_ms) = message.headers() or (), message.timestamp()
            batch.append(Incoming(topic, partition, message.offset(), message.key(), message.value(), headers, log_ms))
        return Fetched(self._epoch, dict(sorted(batches.items(), key=lambda item: item[0].topic != EVENTS.name)))

    def highwater(self, tp: TP) -> int | None:
        """Offset after the last message of a partition, as far as is known."""
        try:
            _, end = self._consumer.get_watermark_offsets(TopicPartition(tp.topic, tp.partition), cached=True)
        except RuntimeError:  # closed, while the watchdog still looks
            return None
        return end if end >= 0 else None

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()
