"""A consumed message, independent of the client that delivered it."""

from typing import NamedTuple, cast

from confluent_kafka import Message


class Received(NamedTuple):
    """One Kafka message; `timestamp_ms` is its CreateTime, -1 if it has none."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


def received(message: Message) -> Received:
    """Copy everything from a client's message, which must not be an error."""
    headers = cast("list[tuple[str, bytes | None]]", message.headers() or [])
    _, timestamp_ms = message.timestamp()
    place = (message.topic() or "", message.partition() or 0, message.offset() or 0)
    return Received(*place, timestamp_ms, message.key(), message.value(), headers)
