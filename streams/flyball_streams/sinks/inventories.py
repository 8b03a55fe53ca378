"""Inventories that name the rows of frames: every sink reads the whole topic."""

import logging
import time
from threading import Event

from confluent_kafka import TopicPartition

from flyball_contracts.codec import decode_record
from flyball_contracts.config import KafkaConfig
from flyball_contracts.errors import DecodeError
from flyball_contracts.frame import Frame
from flyball_contracts.kafka import bounds, consumer_settings, list_topics, open_consumer
from flyball_contracts.records import Inventory
from flyball_contracts.tables import supersedes
from flyball_contracts.topics import INVENTORY
from flyball_streams.received import Received, received

_KEPT = 8
_LOG = logging.getLogger(__name__)
_RESPONSE_S = 10.0
_BATCH = 1_000
_POLL_S = 0.1


class Inventories:
    """The newest inventories of each node, from the start of the topic, in no group.

    The worker reports messages that cannot be decoded; here they are only skipped.
    """

    def __init__(self, kafka: KafkaConfig, stop: Event) -> None:
        settings = consumer_settings(
            kafka.bootstrap, group="flyball-inventories", client_id="flyball-sink-inventories", extra=kafka.client
        )
        self._consumer = open_consumer(settings, _LOG, "inventories")
        self._nodes: dict[str, dict[tuple[str, int], Inventory]] = {}
        known = list_topics(self._consumer, _RESPONSE_S, stop).topics.get(INVENTORY.name)
        self._places = [TopicPartition(INVENTORY.name, p, 0) for p in sorted(known.partitions if known else ())]
        self._consumer.assign(self._places)

    def read_whole(self) -> None:
        """Read to the current end of the topic; give up if the broker is silent for a while."""
        found = bounds(self._consumer, ((p.topic, p.partition) for p in self._places), _RESPONSE_S)
        ends = {partition: following for (_, partition), (_, following) in found.items()}
        give_up = time.monotonic() + _RESPONSE_S
        while time.monotonic() < give_up and self._short_of(ends):
            if self.catch_up(_POLL_S):
                give_up = time.monotonic() + _RESPONSE_S

    def catch_up(self, wait_s: float = 0.0) -> int:
        """Read messages that have arrived, or arrive within `wait_s`; return their number."""
        batch = self._consumer.consume(_BATCH, wait_s) if self._places else []
        for message in batch:
            if message.error() is None:
                self._apply(received(message))
        return len(batch)

    def of(self, frame: Frame) -> Inventory | None:
        """Inventory that a frame refers to, or `None` if unknown."""
        return self._nodes.get(frame.node, {}).get((frame.boot_id, frame.inventory_epoch))

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()

    def _short_of(self, ends: dict[int, int]) -> bool:
        positions = self._consumer.position(self._places)
        return any(max(p.offset, 0) < ends[p.partition] for p in positions)

    def _apply(self, message: Received) -> None:
        if message.value is None:
            self._nodes.pop((message.key or b"").decode(errors="replace"), None)
            return
        try:
            record = decode_record(message.topic, message.value, message.headers)
        except DecodeError:
            return
        if isinstance(record, Inventory):
            epochs = self._nodes.setdefault(record.node, {})
            same = epochs.get((record.boot_id, record.epoch))
            if same is None or supersedes(record, same):
                epochs[record.boot_id, record.epoch] = record
            while len(epochs) > _KEPT:
                del epochs[min(epochs, key=lambda key: epochs[key].time_ns)]
