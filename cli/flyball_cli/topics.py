"""Creating the topics on a broker."""

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from flyball_contracts.config import KafkaConfig
from flyball_contracts.errors import TransportError
from flyball_contracts.topics import TOPICS


def create_topics(kafka: KafkaConfig, replicas: int = 1) -> list[str]:
    """Create the topics of the table that the broker does not have; their names.

    Raises :class:`TransportError` when the broker does not answer or refuses.
    """
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0, **kafka.client})
    try:
        known = set(admin.list_topics(timeout=10.0).topics)
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
    for name, future in admin.create_topics(wanted, request_timeout=20.0).items():
        try:
            future.result()
        except KafkaException as error:
            raise TransportError(f"topic {name} could not be created on {kafka.bootstrap}: {error}") from error
        made.append(name)
    return made
