"""Sends the simulated fleet's messages to the broker."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException, Message as Delivered

from flyball_contracts.codec import Message
from flyball_contracts.config import KafkaConfig
from flyball_contracts.errors import TransportError
from flyball_contracts.kafka import REFUSED, list_topics, open_producer, producer_settings
from flyball_contracts.topics import INVENTORY

_LOG = logging.getLogger(__name__)
_CONNECT_S = 10.0
_FLUSH_S = 15.0
_SLICE_S = 0.1


@dataclass
class FleetReport:
    """Counts of one run; ``failed`` messages were given up by the client."""

    start_ns: int
    ticks: int = 0
    messages: int = 0
    failed: int = 0


class Sender:
    """An idempotent producer that waits for a broker that is away, and for room in its queue.

    It sends no message twice, and loses only what the broker refuses for good or does not take before the end.
    ``acknowledged`` is called with a tick once the broker has all its messages and those of earlier ticks, or has
    refused them for good.
    """

    def __init__(
        self,
        kafka: KafkaConfig,
        cell: str,
        start_ns: int,
        stop: threading.Event,
        acknowledged: Callable[[int], object] | None = None,
    ) -> None:
        self.report, self._stop = FleetReport(start_ns), stop
        self._acknowledged = acknowledged
        self._under_way: dict[int, int] = {}
        self._named = False
        client = f"flyball-fleet-{cell}"
        settings = producer_settings(kafka.bootstrap, client_id=client, delivery_timeout_s=0.0, extra=kafka.client)
        options = {"delivery.report.only.error": acknowledged is None}
        self._producer = open_producer({**settings, **options}, _LOG, "fleet")
        try:
            list_topics(self._producer, _CONNECT_S, stop)
        except KafkaException as error:
            raise TransportError(
                f"no broker answers at {kafka.bootstrap} ({error.args[0].str()}); check kafka.bootstrap or --bootstrap"
            ) from error

    def send(self, messages: list[Message], tick: int | None = None) -> None:
        """Queue the messages of a tick; waits while the queue is full, and gives up only at a stop.

        Frames wait until the broker has the preceding inventories, to which they refer: there is no order across
        partitions.
        """
        watched = None if self._acknowledged is None else tick
        if watched is not None:
            self._under_way[watched] = len(messages)
        for message in messages:
            if self._named and message.topic != INVENTORY.name:
                while self._producer.flush(_SLICE_S) and not self._stop.is_set():
                    pass
            self._named = message.topic == INVENTORY.name
            while not self._queued(message, watched):
                if self._stop.is_set():
                    self.report.failed += 1
                    break
                self._producer.poll(_SLICE_S)
        self._producer.poll(0)

    def wait_until(self, due: float) -> None:
        """Poll the client until a monotonic time, or a stop."""
        while (left := due - time.monotonic()) > 0 and not self._stop.wait(min(left, _SLICE_S)):
            self._producer.poll(0)

    def close(self) -> None:
        """Wait for messages in flight."""
        left = self._producer.flush(_FLUSH_S)
        if left:
            self.report.failed += left
            _LOG.error("%d messages were not delivered within %.0f s and are lost", left, _FLUSH_S)

    def _queued(self, message: Message, tick: int | None) -> bool:
        def delivered(error: KafkaError | None, sent: Delivered) -> None:
            self._delivered(error, sent, tick)

        partition = -1 if message.partition is None else message.partition  # -1: the key decides
        on_delivery = self._lost if tick is None else delivered
        headers: list[tuple[str, str | bytes | None]] = list(message.headers)
        try:
            self._producer.produce(
                message.topic, message.value, message.key, partition, headers=headers, on_delivery=on_delivery
            )
        except BufferError:
            return False
        self.report.messages += 1
        return True

    def _delivered(self, error: KafkaError | None, message: Delivered, tick: int | None) -> None:
        self._lost(error, message)
        if tick is None or self._acknowledged is None or (error is not None and error.code() not in REFUSED):
            return
        self._under_way[tick] -= 1
        while self._under_way and not self._under_way[first := min(self._under_way)]:
            del self._under_way[first]
            self._acknowledged(first)

    def _lost(self, error: KafkaError | None, message: Delivered) -> None:
        if error is not None:
            self.report.failed += 1
            if self.report.failed == 1:
                _LOG.error("a message for %s was not delivered: %s", message.topic(), error)
