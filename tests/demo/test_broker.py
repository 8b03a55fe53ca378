"""The demo's broker: users find it on the port that they name."""

import socket

import pytest
from confluent_kafka import Consumer, Producer

from flyball_cli.demo.broker import embedded
from flyball_contracts.errors import TransportError
from flyball_contracts.kafka import consumer_settings, producer_settings
from flyball_contracts.topics import DECISIONS


def test_clients_start_at_the_port_that_was_named() -> None:
    with embedded(0) as (bootstrap, public):
        assert bootstrap != public
        producer = Producer(producer_settings(bootstrap, client_id="test"))
        producer.produce(DECISIONS.name, b"{}", b"key")
        assert producer.flush(30.0) == 0
        consumer = Consumer(consumer_settings(public, group="test", client_id="test"))
        consumer.subscribe([DECISIONS.name])
        message = consumer.poll(30.0)
        consumer.close()
    assert message is not None
    assert message.error() is None
    assert message.key() == b"key"


def test_a_port_that_is_taken_is_reported() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(TransportError, match=f"--broker-port {port}: .*; name another port"), embedded(port):
            pass
