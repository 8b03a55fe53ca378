"""The client settings, on the real clients, and where keys go."""

import gc
import logging
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka.partitioner import DefaultPartitioner  # type: ignore[import-untyped]  # pyright: ignore[reportMissingTypeStubs]
from confluent_kafka import Consumer, KafkaError, Message, Producer
from tests.brokers.embedded import EmbeddedBroker

from flyball_contracts.kafka import consumer_settings, open_admin, open_consumer, open_producer, producer_settings
from flyball_contracts.partitioner import murmur2, partition_of

KEYS = [b"", b"a", b"ab", b"abc", b"abcd", *(f"node-{i}".encode() for i in range(100)),
        *(("\u00e9" * (i % 9) + f"/{i:x}").encode() for i in range(95))]  # fmt: skip


def test_real_clients_take_the_settings_without_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    log = logging.getLogger("flyball.test")
    with caplog.at_level(logging.DEBUG, log.name):
        extra = {"security.protocol": "plaintext"}
        producer = Producer(producer_settings("127.0.0.1:1", client_id="t", extra=extra), logger=log)
        producer.poll(0.1)
        consumer = Consumer(consumer_settings("127.0.0.1:1", group="g", client_id="t", extra=extra), logger=log)
        consumer.poll(0.1)
        consumer.close()
    assert not [record.message for record in caplog.records if "CONFWARN" in record.message]


def test_settings_say_what_the_design_asks() -> None:
    producing = producer_settings("h:1", client_id="t", queue_bytes=10, delivery_timeout_s=2.5, linger_ms=3)
    assert producing["enable.idempotence"] is True
    assert producing["partitioner"] == "murmur2_random"
    assert producing["compression.type"] == "zstd"
    assert producer_settings("h:1", client_id="t", portable=True)["compression.type"] == "gzip"
    assert producing["queue.buffering.max.kbytes"] == 1
    assert producing["delivery.timeout.ms"] == 2500
    consuming = consumer_settings("h:1", group="g", client_id="t", from_start=False)
    assert consuming["enable.auto.commit"] is False
    assert consuming["auto.offset.reset"] == "latest"
    assert consumer_settings("h:1", group="g", client_id="t")["auto.offset.reset"] == "earliest"
    assert producer_settings("h:1", client_id="t", extra={"client.id": "u"})["client.id"] == "u"


def test_murmur2_has_the_values_of_kafka_s_own_tests() -> None:
    known = {
        b"21": -973932308,
        b"foobar": -790332482,
        b"a-little-bit-long-string": -985981536,
        b"a-little-bit-longer-string": -1486304829,
        b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
        b"abc": 479470107,
    }
    assert {key: murmur2(key) for key in known} == {key: value % 2**32 for key, value in known.items()}


@pytest.mark.parametrize("partitions", [1, 2, 7, 8])
def test_faust_s_client_puts_a_key_where_we_say(partitions: int) -> None:
    theirs, every = DefaultPartitioner(), list(range(partitions))
    assert [partition_of(key, partitions) for key in KEYS] == [theirs(key, every, every) for key in KEYS]


def test_confluent_s_client_puts_a_key_where_we_say(
    embedded_broker: Callable[..., EmbeddedBroker], unique: Callable[[str], str]
) -> None:
    topic, found = unique("keys"), dict[bytes, int]()

    def delivered(error: KafkaError | None, message: Message) -> None:
        assert error is None
        key, partition = message.key(), message.partition()
        assert isinstance(key, bytes)
        assert partition is not None
        found[key] = partition

    broker = embedded_broker({topic: 7})
    producer = Producer(producer_settings(broker.bootstrap, client_id="t", linger_ms=0))
    for key in KEYS:
        producer.produce(topic, b"x", key, on_delivery=delivered)
    assert producer.flush(30) == 0
    # A key of no bytes is a key like any other to aiokafka; librdkafka may spread it, so ours are never empty.
    assert {k: p for k, p in found.items() if k} == {key: partition_of(key, 7) for key in KEYS if key}


@pytest.mark.parametrize(
    ("opened", "others"), [(open_admin, {}), (open_consumer, {"group.id": "test"}), (open_producer, {})]
)
def test_a_client_that_is_dropped_is_destroyed_at_once(opened: Callable[..., Any], others: dict[str, str]) -> None:
    # Not when garbage is collected: that may be in a thread of librdkafka, which aborts the process then.
    gc.disable()
    try:
        client = opened({"bootstrap.servers": "127.0.0.1:1", **others}, logging.getLogger("test"), "test")
        there = weakref.ref(client)
        del client
        assert there() is None
    finally:
        gc.enable()
