"""The tables of a worker whose broker was killed: they are read to their ends before anything is decided on them."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from confluent_kafka import Producer
from tests.brokers.kafka import RealKafka
from tests.contracts.strategies import samples

from flyball_cli.topics import create_topics
from flyball_contracts.codec import record_message
from flyball_contracts.config import KafkaConfig
from flyball_contracts.kafka import producer_settings
from flyball_contracts.topics import TOPICS, WORKLOADS
from flyball_streams.worker.tables import TableReader

pytestmark = pytest.mark.integration


@pytest.fixture
def kafka(kafka_jars: Path) -> Iterator[RealKafka]:
    with RealKafka(jars=kafka_jars) as broker:
        create_topics(KafkaConfig(bootstrap=broker.bootstrap, partitions=dict.fromkeys(TOPICS, 1)))
        yield broker


def test_the_ends_are_requested_for_until_they_are_known(kafka: RealKafka, caplog: pytest.LogCaptureFixture) -> None:
    reader = TableReader(KafkaConfig(bootstrap=kafka.bootstrap), "test", "test")
    reader.start()
    try:
        for _ in range(3):
            kafka.set_down()
            kafka.set_up()
            producer = Producer(producer_settings(kafka.bootstrap, client_id="test"), logger=logging.getLogger("test"))
            m = record_message(samples()["WorkloadSpec"][0], "/test")
            producer.produce(WORKLOADS.name, m.value, m.key, headers=cast(Any, m.headers))
            assert producer.flush(30.0) == 0
            with caplog.at_level(logging.WARNING, "flyball_streams.worker.tables"):
                reader.catch_up(WORKLOADS.name, timeout_s=30.0)
            assert "what is older is used" not in caplog.text
            assert len(reader.drain().rows) == 1
    finally:
        reader.close()
