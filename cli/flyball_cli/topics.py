"""Prepares a broker: its topics, and the start offsets of a new group."""

import logging
from collections.abc import Sequence
from threading import Event
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.cimpl import NewTopic

from flyball_contracts.config import KafkaConfig
from flyball_contracts.errors import TransportError
from flyball_contracts.kafka import bounds, consumer_settings, list_topics, open_admin, open_consumer
from flyball_contracts.topics import TOPICS, Topic

log = logging.getLogger(__name__)
ANSWER_S = 10.0
LEADERS_S = 60.0


def create_topics(kafka: KafkaConfig, replicas: int = 1, stop: Event | None = None) -> list[str]:
    """Create the missing topics of the table; return their names.

    Raises :class:`TransportError` when the broker does not respond or refuses, :class:`Stopped` when ``stop`` is set
    during the wait.
    """
    admin = open_admin({"bootstrap.servers": kafka.bootstrap, **kafka.client}, log, "topics", log_errors=False)
    try:
        known = set(list_topics(admin, ANSWER_S, stop).topics)
    except KafkaException as error:
        raise TransportError(
            f"no Kafka broker answers at {kafka.bootstrap}: start one, or set kafka.bootstrap (--bootstrap)"
        ) from error
    wanted = [
        NewTopic(t.name, kafka.partitions.get(t.name, t.partitions), replicas, config=dict(t.config))
        for t in TOPICS.values()
        if t.name not in known
    ]
    if not wanted:
        return []
    made: list[str] = []
    futures: dict[str, Any] = admin.create_topics(wanted, request_timeout=20.0)
    for name, future in futures.items():
        try:
            future.result()
        except KafkaException as error:
            raise TransportError(
                f"topic {name} could not be created on {kafka.bootstrap}: {error.args[0].str()}"
            ) from error
        made.append(name)
    _wait_for_leaders(kafka, made)
    return made


def _wait_for_leaders(kafka: KafkaConfig, names: Sequence[str]) -> None:
    """Wait until each partition has a leader: a broker confirms a new topic before its partitions have one."""
    consumer = _consumer(kafka, "flyball-topics")
    try:
        known = list_topics(consumer, ANSWER_S).topics
        bounds(consumer, ((name, p) for name in names for p in known[name].partitions), LEADERS_S)
    except KafkaException as error:
        raise TransportError(f"the new topics on {kafka.bootstrap} cannot be read: {error.args[0].str()}") from error
    finally:
        consumer.close()


def _consumer(kafka: KafkaConfig, group: str) -> Consumer:
    settings = consumer_settings(kafka.bootstrap, group=group, client_id=group, extra=kafka.client)
    return open_consumer(settings, log, "topics", log_errors=False)


def start_group_at_end(kafka: KafkaConfig, group: str, topics: Sequence[Topic]) -> None:
    """Commit the current ends of topics for a consumer group without members.

    Raises :class:`TransportError` when the broker does not respond or refuses.
    """
    consumer = _consumer(kafka, group)
    try:
        known = list_topics(consumer, ANSWER_S).topics
        found = bounds(consumer, ((topic.name, p) for topic in topics for p in known[topic.name].partitions), ANSWER_S)
        ends = [TopicPartition(*place, following) for place, (_, following) in found.items()]
        consumer.commit(offsets=ends, asynchronous=False)
    except KafkaException as error:
        raise TransportError(
            f"group {group} could not be set to the ends of its topics: {error.args[0].str()}"
        ) from error
    finally:
        consumer.close()
