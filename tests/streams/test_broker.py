"""What we rely on in both brokers, and what only the embedded one can do."""

import logging
import socket
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.brokers.base import Broker
from tests.brokers.embedded import EmbeddedBroker
from tests.brokers.faults import ApiKey, Fault

from flyball_contracts.errors import TransportError
from flyball_streams.broker import mock_cluster

Unique = Callable[[str], str]
Start = Callable[..., EmbeddedBroker]

WAIT_S = 30.0
QUIET = {"log_level": 2, "reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 200}
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


def producer(bootstrap: str, **settings: object) -> Producer:
    base = {"bootstrap.servers": bootstrap, "partitioner": "murmur2_random", "linger.ms": 5}
    return Producer({**QUIET, **base, **settings})


def produce(bootstrap: str, topic: str, values: Sequence[bytes], **settings: object) -> None:
    client = producer(bootstrap, **settings)
    for value in values:
        client.produce(topic, value, key=b"k")
    assert client.flush(WAIT_S) == 0


def consumer(bootstrap: str, group: str) -> Consumer:
    settings = {
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "session.timeout.ms": 6000,  # the mock's rebalances last this long; a real broker's least
        "fetch.wait.max.ms": 50,  # the mock always waits this long
    }
    return Consumer({**QUIET, "bootstrap.servers": bootstrap, **settings})


def take(client: Consumer, count: int) -> list[Message]:
    """Exactly the next `count` messages, or a failure."""
    messages: list[Message] = []
    while len(messages) < count:
        batch = client.consume(count - len(messages), timeout=WAIT_S)
        assert batch, f"only {len(messages)} of {count} messages"
        for message in batch:
            assert message.error() is None, message.error()
        messages += batch
    return messages


def read(bootstrap: str, topic: str, partitions: int, count: int) -> list[Message]:
    """The first `count` messages of a topic, and proof that there are no more."""
    client = consumer(bootstrap, "reader")
    try:
        places = [TopicPartition(topic, p, 0) for p in range(partitions)]
        client.assign(places)
        messages = take(client, count)
        ends = [client.get_watermark_offsets(place, timeout=WAIT_S)[1] for place in places]
        assert sum(ends) == count
        return messages
    finally:
        client.close()


def values(messages: Sequence[Message]) -> list[bytes | None]:
    return [message.value() for message in messages]


def partitions_of(client: Producer, topic: str) -> int:
    return len(client.list_topics(topic, timeout=WAIT_S).topics[topic].partitions)


# Both brokers


def test_a_record_arrives_as_it_was_sent(broker: Broker, unique: Unique) -> None:
    topic = unique("records")
    broker.create_topics({topic: 1})
    client = producer(broker.bootstrap, **{"compression.type": "zstd", "enable.idempotence": True})
    headers: list[tuple[str, str | bytes | None]] = [("ce_id", b"1"), ("ce_id", b"2"), ("empty", b"")]
    client.produce(topic, b"\x00\xff" * 4096, key=b"node-1", headers=headers, timestamp=1_600_000_000_123)
    client.produce(topic, None, key=b"tombstone")
    assert client.flush(WAIT_S) == 0

    record, tombstone = read(broker.bootstrap, topic, 1, 2)
    assert (record.key(), record.value(), record.headers()) == (b"node-1", b"\x00\xff" * 4096, headers)
    assert record.timestamp()[1] == 1_600_000_000_123
    assert (tombstone.key(), tombstone.value()) == (b"tombstone", None)


def test_every_compression_arrives(broker: Broker, unique: Unique) -> None:
    topic = unique("codecs")
    broker.create_topics({topic: 1})
    for codec in CODECS:
        produce(broker.bootstrap, topic, [codec.encode() * 500], **{"compression.type": codec})
    messages = read(broker.bootstrap, topic, 1, len(CODECS))
    assert values(messages) == [codec.encode() * 500 for codec in CODECS]


def test_topics_have_the_partitions_requested_for(broker: Broker, unique: Unique) -> None:
    wanted = {unique("one"): 1, unique("many"): 24}
    broker.create_topics(wanted)
    client = producer(broker.bootstrap)
    assert {topic: partitions_of(client, topic) for topic in wanted} == wanted


@pytest.mark.parametrize("partitions", [0, 3])
def test_a_refused_topic_is_named(broker: Broker, unique: Unique, partitions: int) -> None:
    topic = unique("taken")
    broker.create_topics({topic: 3})
    with pytest.raises(TransportError, match=topic):
        broker.create_topics({topic: partitions})


def test_keys_land_where_faust_puts_them(broker: Broker, unique: Unique) -> None:
    murmur2: Callable[[bytes], int] = import_module("aiokafka.partitioner").murmur2
    topic, partitions = unique("keys"), 12
    broker.create_topics({topic: partitions})
    keys = [f"node-{n}".encode() for n in range(200)]
    client = producer(broker.bootstrap)
    for key in keys:
        client.produce(topic, b"", key=key)
    assert client.flush(WAIT_S) == 0
    landed = {message.key(): message.partition() for message in read(broker.bootstrap, topic, partitions, len(keys))}
    assert landed == {key: (murmur2(key) & 0x7FFF_FFFF) % partitions for key in keys}


def test_a_group_resumes_at_its_commit(broker: Broker, unique: Unique) -> None:
    topic, group = unique("resume"), unique("group")
    broker.create_topics({topic: 1})
    sent = [str(n).encode() for n in range(10)]
    produce(broker.bootstrap, topic, sent)

    first = consumer(broker.bootstrap, group)
    first.subscribe([topic])
    assert values(take(first, 4)) == sent[:4]
    first.commit(offsets=[TopicPartition(topic, 0, 4)], asynchronous=False)
    first.close()

    second = consumer(broker.bootstrap, group)
    second.subscribe([topic])
    assert values(take(second, 6)) == sent[4:]
    second.close()


def test_an_outage_loses_and_repeats_nothing(broker: Broker, unique: Unique) -> None:
    topic = unique("outage")
    broker.create_topics({topic: 1})
    sent = [str(n).encode() for n in range(300)]
    client = producer(broker.bootstrap, **{"enable.idempotence": True})
    for value in sent[:100]:
        client.produce(topic, value, key=b"k")
    assert client.flush(WAIT_S) == 0

    broker.set_down()
    for value in sent[100:200]:
        client.produce(topic, value, key=b"k")
    assert client.flush(0.2) == 100  # nobody took them
    broker.set_up()

    for value in sent[200:]:
        client.produce(topic, value, key=b"k")
    assert client.flush(WAIT_S) == 0
    assert values(read(broker.bootstrap, topic, 1, len(sent))) == sent


# The embedded broker only


def test_embedded_several_brokers_serve_together(embedded_broker: Start) -> None:
    started = embedded_broker({"t": 6}, brokers=3)
    assert started.bootstrap.count(",") == 2
    produce(started.bootstrap, "t", [b"a", b"b"])
    assert values(read(started.bootstrap, "t", 6, 2)) == [b"a", b"b"]


def test_embedded_closes_once_and_for_all() -> None:
    with EmbeddedBroker({"t": 1}) as started:
        host, port = started.bootstrap.split(":")
        socket.create_connection((host, int(port)), timeout=WAIT_S).close()
        started.close()
    with pytest.raises(OSError, match="refused"):
        socket.create_connection((host, int(port)), timeout=WAIT_S)
    with pytest.raises(TransportError, match="closed"):
        started.create_topic("u", 1)


def test_embedded_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    with EmbeddedBroker({"t": 1}) as started:
        produce(started.bootstrap, "t", [b"v"])
    assert capfd.readouterr() == ("", "")


def test_embedded_refuses_admin_calls_at_once(embedded_broker: Start) -> None:
    admin: Any = AdminClient({**QUIET, "bootstrap.servers": embedded_broker({}).bootstrap})
    answer = admin.create_topics([NewTopic("t", 1, 1)], request_timeout=600)["t"]
    with pytest.raises(KafkaException) as refused:
        answer.result(WAIT_S)
    assert refused.value.args[0].code() == KafkaError._UNSUPPORTED_FEATURE


def test_embedded_answers_pushed_errors_in_order(embedded_broker: Start) -> None:
    started = embedded_broker({"t": 1})
    started.push_request_errors(ApiKey.PRODUCE, [Fault.MESSAGE_TOO_LARGE, Fault.NONE, Fault.MESSAGE_TOO_LARGE])
    client = producer(started.bootstrap)
    codes: list[int | None] = []

    def note(error: KafkaError | None, _: Message) -> None:
        codes.append(error.code() if error is not None else None)

    for value in (b"0", b"1", b"2", b"3"):
        client.produce("t", value, on_delivery=note)
        assert client.flush(WAIT_S) == 0
    assert codes == [Fault.MESSAGE_TOO_LARGE, None, Fault.MESSAGE_TOO_LARGE, None]
    assert values(read(started.bootstrap, "t", 1, 2)) == [b"1", b"3"]


def test_embedded_retries_hide_passing_faults(embedded_broker: Start) -> None:
    started = embedded_broker({"t": 1})
    faults = [Fault.NOT_LEADER_OR_FOLLOWER, Fault.DISCONNECT, Fault.REQUEST_TIMED_OUT]
    started.push_request_errors(ApiKey.PRODUCE, faults)
    sent = [str(n).encode() for n in range(50)]
    produce(started.bootstrap, "t", sent, **{"enable.idempotence": True})
    assert values(read(started.bootstrap, "t", 1, len(sent))) == sent


def test_embedded_slow_broker_times_messages_out(embedded_broker: Start) -> None:
    started = embedded_broker({"t": 1})
    client = producer(started.bootstrap, **{"message.timeout.ms": 500})
    outcomes: list[int | None] = []

    def note(error: KafkaError | None, _: Message) -> None:
        outcomes.append(error.code() if error is not None else None)

    for rtt_ms in (0, 60_000):
        started.set_rtt(rtt_ms)
        client.produce("t", b"v", on_delivery=note)
        assert client.flush(WAIT_S) == 0
    assert outcomes == [None, KafkaError._MSG_TIMED_OUT]


def test_embedded_topic_error_comes_and_goes(embedded_broker: Start) -> None:
    started = embedded_broker({"t": 1})
    client = producer(started.bootstrap)
    for fault in (Fault.TOPIC_AUTHORIZATION_FAILED, Fault.NONE):
        started.set_topic_error("t", fault)
        error = client.list_topics("t", timeout=WAIT_S).topics["t"].error
        assert (error.code() if error is not None else Fault.NONE) == fault


def test_embedded_deletes_old_records(embedded_broker: Start) -> None:
    started = embedded_broker({"t": 1})
    for value in (b"0", b"1", b"2"):  # one batch each: the mock drops whole batches
        produce(started.bootstrap, "t", [value])
    started.delete_records("t", 0, 2)
    client = consumer(started.bootstrap, "late")
    client.assign([TopicPartition("t", 0, 0)])
    assert values(take(client, 1)) == [b"2"]
    client.close()
    with pytest.raises(TransportError, match=r"'t'\[0\] below 99: .*out of range"):
        started.delete_records("t", 0, 99)


# Without librdkafka's shared object


def test_embedded_falls_back_to_a_clients_own_mock(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise mock_cluster.LibraryMissing("no librdkafka here")

    monkeypatch.setattr(mock_cluster, "load", fail)
    with caplog.at_level(logging.WARNING), EmbeddedBroker({"t": 7}) as started:
        produce(started.bootstrap, "t", [b"v"])
        assert values(read(started.bootstrap, "t", 4, 1)) == [b"v"]
        with pytest.raises(TransportError, match="shared object"):
            started.set_down()
    assert "without fault injection, and with 4 partitions in every topic: no librdkafka here" in caplog.text
    assert "topic t has 4 partitions, not 7" in caplog.text


def test_a_library_without_a_function_of_ours_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(vars(mock_cluster)["_SIGNATURES"], "rd_kafka_mock_no_such_function", (None, []))
    with pytest.raises(mock_cluster.LibraryMissing, match="rd_kafka_mock_no_such_function"):
        mock_cluster.load()
