"""Compacted topics for commands: read as a whole, written and acknowledged."""

import logging
import time
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message as KafkaMessage, TopicPartition

from flyball_contracts.codec import Message, decode_record, record_message
from flyball_contracts.config import KafkaConfig
from flyball_contracts.errors import DecodeError, TransportError
from flyball_contracts.kafka import (
    bounds,
    consumer_settings,
    list_topics,
    open_consumer,
    open_producer,
    producer_settings,
)
from flyball_contracts.records import Record
from flyball_contracts.topics import Topic

log = logging.getLogger(__name__)
ANSWER_S = 10.0
DELIVERY_S = 30.0
_BATCH = 1_000


class Entry(NamedTuple):
    """A record under its key, ``None`` if the key was removed."""

    key: str
    record: Record | None


def read_compacted(kafka: KafkaConfig, topic: Topic, client: str) -> list[Entry]:
    """All entries of a topic, each partition in its order; undecodable ones are skipped and logged.

    Raises :class:`TransportError` when the broker does not respond or has no such topic.
    """
    settings: dict[str, Any] = {
        **consumer_settings(kafka.bootstrap, group=client, client_id=client, extra=kafka.client),
        "enable.partition.eof": True,  # where compaction removed the last record, only this marks the end
    }
    consumer = open_consumer(settings, log, topic.name, log_errors=False)
    try:
        return _decoded(topic, _messages(consumer, topic, kafka.bootstrap))
    except KafkaException as error:
        raise TransportError(
            f"{topic.name} cannot be read at {kafka.bootstrap}: {error.args[0].str()}; "
            "start the broker, or set kafka.bootstrap (--bootstrap)"
        ) from error
    finally:
        consumer.close()


def write_records(kafka: KafkaConfig, records: Sequence[Record], client: str, what: str) -> None:
    """Send records and wait until the broker has acknowledged all of them; ``what`` names them in errors.

    Raises :class:`TransportError`, which names the unacknowledged records.
    """
    _send(kafka, [record_message(record, f"/cli/{what}") for record in records], client, what)


def remove_keys(kafka: KafkaConfig, topic: Topic, keys: Sequence[str], client: str, what: str) -> None:
    """Send a tombstone for each key of a topic and wait; errors are those of :func:`write_records`."""
    _send(kafka, [Message(topic.name, key.encode(), b"", []) for key in keys], client, what)


def _send(kafka: KafkaConfig, messages: Sequence[Message], client: str, what: str) -> None:
    settings = producer_settings(kafka.bootstrap, client_id=client, delivery_timeout_s=DELIVERY_S, extra=kafka.client)
    producer = open_producer(settings, log, what, log_errors=False)
    try:
        list_topics(producer, ANSWER_S)  # without a broker, each message would wait for DELIVERY_S
    except KafkaException as error:
        raise TransportError(
            f"no Kafka broker answers at {kafka.bootstrap} ({error.args[0].str()}), so the {what} were not sent: "
            "start one, or set kafka.bootstrap (--bootstrap)"
        ) from error
    waiting, reason = {message.key.decode() for message in messages}, ["no answer"]

    def delivered(error: KafkaError | None, message: KafkaMessage) -> None:
        if error is None:
            waiting.discard((message.key() or b"").decode())
        else:
            reason[0] = error.str()

    for m in messages:
        while True:
            try:
                producer.produce(m.topic, m.value or None, m.key, headers=cast("Any", m.headers), on_delivery=delivered)
                break
            except BufferError:
                producer.poll(1.0)
    producer.flush(DELIVERY_S + 5.0)
    if waiting:
        names = sorted(waiting)
        shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
        raise TransportError(
            f"{len(names)} of {len(messages)} {what} were not acknowledged by {kafka.bootstrap} ({reason[0]}): "
            f"{shown}; run the command again"
        )


def _messages(consumer: Consumer, topic: Topic, bootstrap: str) -> list[KafkaMessage]:
    known = list_topics(consumer, ANSWER_S).topics.get(topic.name)
    if known is None or known.error is not None or not known.partitions:
        raise TransportError(f"{bootstrap} has no topic {topic.name}; create the topics with `flyball topics --create`")
    found_bounds = bounds(consumer, [(topic.name, p) for p in sorted(known.partitions)], ANSWER_S)
    ends = {partition: following for (_, partition), (_, following) in found_bounds.items()}
    waiting = {partition for (_, partition), (first, following) in found_bounds.items() if first < following}
    consumer.assign([TopicPartition(*place, first) for place, (first, _) in found_bounds.items()])
    found: list[KafkaMessage] = []
    give_up_s = time.monotonic() + ANSWER_S
    while waiting:
        if time.monotonic() > give_up_s:
            raise TransportError(f"{topic.name} at {bootstrap} was not read to its end within {ANSWER_S:.0f} s")
        for message in consumer.consume(_BATCH, 0.05):
            error, partition, offset = message.error(), message.partition() or 0, message.offset() or 0
            if error is None:
                found.append(message)
                give_up_s = time.monotonic() + ANSWER_S
                offset += 1
            elif error.code() != KafkaError._PARTITION_EOF:  # pyright: ignore[reportPrivateUsage]
                raise KafkaException(error)
            if offset >= ends[partition]:
                waiting.discard(partition)
    return found


def _decoded(topic: Topic, messages: Sequence[KafkaMessage]) -> list[Entry]:
    found: list[Entry] = []
    unread = 0
    for message in messages:
        key, value = (message.key() or b"").decode("utf-8", "replace"), message.value()
        headers = cast("list[tuple[str, bytes | None]]", message.headers() or [])
        try:
            found.append(Entry(key, None if value is None else decode_record(topic.name, value, headers)))
        except DecodeError:
            unread += 1
    if unread:
        log.warning("%s: %d messages cannot be decoded; they are passed over", topic.name, unread)
    return found
