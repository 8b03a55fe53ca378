"""Client settings for confluent-kafka, as data, so that every producer partitions and retries alike."""

from collections.abc import Mapping

from confluent_kafka import KafkaError

REFUSED = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.INVALID_MSG,
        KafkaError.INVALID_MSG_SIZE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_RECORD,
    }
)
"""Codes with which a broker refuses a message for good: no later try would change the answer."""
Settings = dict[str, str | int | float | bool]

_QUIET: Settings = {
    "log.connection.close": False,
    "reconnect.backoff.ms": 100,
    "reconnect.backoff.max.ms": 5_000,
    "socket.keepalive.enable": True,
    "socket.nagle.disable": True,  # else a small request may wait 40 ms for the peer's delayed acknowledgement
}


def producer_settings(
    bootstrap: str,
    *,
    client_id: str,
    queue_bytes: int = 64 * 1024 * 1024,
    delivery_timeout_s: float = 120.0,
    linger_ms: int = 5,
    portable: bool = False,
    extra: Mapping[str, str] | None = None,
) -> Settings:
    """Idempotent producer: ordered, acknowledged by all replicas, compressed, bounded queue.

    A ``delivery_timeout_s`` of 0 means no limit.

    Messages are compressed with zstd, or with gzip when ``portable``: every client reads gzip, and a broker that
    stores a topic in gzip takes them as they are.

    ``murmur2_random`` puts a key where Java clients and Faust put it; librdkafka's own default does not.
    """
    settings: Settings = {
        **_QUIET,
        "bootstrap.servers": bootstrap,
        "client.id": client_id,
        "enable.idempotence": True,
        "partitioner": "murmur2_random",
        "compression.type": "gzip" if portable else "zstd",
        "linger.ms": linger_ms,
        "queue.buffering.max.kbytes": max(1, queue_bytes // 1024),
        "delivery.timeout.ms": round(delivery_timeout_s * 1000),
    }
    return {**settings, **(extra or {})}


def consumer_settings(
    bootstrap: str,
    *,
    group: str,
    client_id: str,
    from_start: bool = True,
    extra: Mapping[str, str] | None = None,
) -> Settings:
    """Consumer that commits only explicitly, after the effect."""
    settings: Settings = {
        **_QUIET,
        "bootstrap.servers": bootstrap,
        "client.id": client_id,
        "group.id": group,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "earliest" if from_start else "latest",
        "fetch.wait.max.ms": 50,
    }
    return {**settings, **(extra or {})}
