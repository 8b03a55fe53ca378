"""Topics of the controller that are made again while it runs."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from tests.actuators.loop import PARTITIONS, publish, wait_for
from tests.actuators.samples import spec
from tests.brokers.kafka import RealKafka

from flyball_actuators.controller.topics import CONTROLLERS, Topics
from flyball_contracts.config import KafkaConfig
from flyball_contracts.errors import TransportError
from flyball_contracts.topics import WORKLOADS

DEADLINE_S = 60.0


@pytest.fixture
def own_kafka(kafka_jars: Path) -> Iterator[RealKafka]:
    with RealKafka(dict.fromkeys(PARTITIONS, 1), jars=kafka_jars) as broker:
        yield broker


@pytest.mark.integration
@pytest.mark.parametrize("published", [0, 3])
def test_a_topic_that_was_made_again_ends_the_controller(own_kafka: RealKafka, published: int) -> None:
    bootstrap = own_kafka.bootstrap
    topics = Topics(KafkaConfig(bootstrap=bootstrap), threading.Event())
    try:
        assert topics.publish([spec("a"), spec("b")], (), f"{CONTROLLERS}cell-a")
        wait_for(lambda: not topics.drain(0.2), "its own records")
        admin: Any = AdminClient({"bootstrap.servers": bootstrap})  # its own types are incomplete
        admin.delete_topics([WORKLOADS.name])[WORKLOADS.name].result(DEADLINE_S)
        wait_for(lambda: WORKLOADS.name not in admin.list_topics(timeout=10).topics, "the end of the topic")
        own_kafka.create_topics({WORKLOADS.name: 1})
        publish(bootstrap, *map(spec, "cde"[:published]))  # by others, perhaps more than there was

        def forever() -> bool:
            topics.drain(0.2)
            return False

        with pytest.raises(TransportError, match=r"workloads\.v1(/0)? was made again"):
            wait_for(forever, "the new topic")
    finally:
        topics.close()
