"""Following decisions: the simulated platform obeys what the actuator reports as done."""

import logging
from collections.abc import Sequence
from typing import NamedTuple, cast

from confluent_kafka import Consumer, KafkaException, TopicPartition

from flyball_contracts.codec import decode_message
from flyball_contracts.config import KafkaConfig
from flyball_contracts.errors import DecodeError, TransportError
from flyball_contracts.kafka import consumer_settings
from flyball_contracts.kafka_log import ClientLog
from flyball_contracts.records import AnyDecision, Migrate, Outcome, Preempt, Scale
from flyball_contracts.topics import DECISIONS, OUTCOMES

_LOG = logging.getLogger(__name__)
TIMEOUT_S = 10.0
BATCH = 500


class Followed(NamedTuple):
    """Decisions to obey now, and how many messages could not be read."""

    decisions: list[AnyDecision]
    undecodable: int


class Follower:
    """Pairs decisions of one cell with their outcomes, in whichever order they come.

    It sees what is written after it was made, and commits nothing. Raises :class:`TransportError` when the broker
    does not answer or lacks the topics.
    """

    def __init__(self, kafka: KafkaConfig, cell: str) -> None:
        self._cell = cell
        self._waiting: dict[str, AnyDecision] = {}
        self._done: set[str] = set()
        client = f"flyball-fleet-{cell}"
        settings = consumer_settings(kafka.bootstrap, group=client, client_id=client, extra=kafka.client)
        told = ClientLog(_LOG, "decisions to follow", kafka.bootstrap)
        self._consumer = Consumer({**settings, "error_cb": told.on_error}, logger=told)
        try:
            self._consumer.assign([self._end_of(tp) for tp in self._partitions()])
        except KafkaException as error:
            self._consumer.close()
            raise TransportError(f"cannot follow decisions at {kafka.bootstrap}: {error.args[0].str()}") from error
        except TransportError:
            self._consumer.close()
            raise

    def poll(self) -> Followed:
        """What has come in since the last call; does not wait."""
        decisions: list[AnyDecision] = []
        undecodable = 0
        for message in self._consumer.consume(BATCH, timeout=0):
            if message.error() is not None:
                continue  # the client retries by itself
            headers = cast("Sequence[tuple[str, bytes | None]] | None", message.headers())
            try:
                record = decode_message(message.topic() or "", message.value(), headers)
            except DecodeError:
                undecodable += 1
                continue
            ready = self._take(record)
            if ready is not None:
                decisions.append(ready)
        return Followed(decisions, undecodable)

    def close(self) -> None:
        """Leave."""
        self._consumer.close()

    def _take(self, record: object) -> AnyDecision | None:
        if isinstance(record, (Scale, Migrate, Preempt)) and record.cell == self._cell:
            if record.id in self._done:
                self._done.discard(record.id)
                return record
            self._waiting[record.id] = record
        elif isinstance(record, Outcome) and record.cell == self._cell:
            if record.status == "accepted":
                return None
            decision = self._waiting.pop(record.decision, None)
            if record.status == "done":
                if decision is None:
                    self._done.add(record.decision)
                return decision
        return None

    def _partitions(self) -> list[TopicPartition]:
        found: list[TopicPartition] = []
        for topic in (DECISIONS.name, OUTCOMES.name):
            meta = self._consumer.list_topics(topic, timeout=TIMEOUT_S).topics[topic]
            if meta.error is not None or not meta.partitions:
                raise TransportError(f"topic {topic} does not exist; create the topics with `flyball topics`")
            found += [TopicPartition(topic, p) for p in sorted(meta.partitions)]
        return found

    def _end_of(self, tp: TopicPartition) -> TopicPartition:
        _, end = self._consumer.get_watermark_offsets(tp, timeout=TIMEOUT_S)
        return TopicPartition(tp.topic, tp.partition, end)
