"""Typed access to confluent-kafka messages."""

from typing import cast

from confluent_kafka import Message

Headers = list[tuple[str, bytes | None]]
END_OF_PARTITION = -191  # librdkafka's RD_KAFKA_RESP_ERR__PARTITION_EOF


def headers_of(message: Message) -> Headers:
    """Headers of a consumed message; a consumer always gives a list of bytes, or nothing."""
    return cast(Headers, message.headers() or [])
