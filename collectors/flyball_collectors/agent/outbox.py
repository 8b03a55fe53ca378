"""The way to Kafka: an idempotent producer that never blocks the tick loop and counts what it gives up."""

import logging
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message as Delivered, Producer

from flyball_contracts.codec import Message
from flyball_contracts.config import KafkaConfig
from flyball_contracts.errors import ConfigError
from flyball_contracts.kafka import producer_settings
from flyball_contracts.topics import TELEMETRY

_LOG = logging.getLogger(__name__)
_WARN_EVERY_S = 30.0
_REOPEN_EVERY_S = 1.0


class Outbox:
    """Sends messages in the background.

    Memory is bounded by ``queue_bytes``. While no broker takes them, the oldest messages are given up when
    the delivery timeout ends, and new ones when the queue is full. ``delivered``, ``dropped`` and
    ``dropped_frames`` count messages; what is neither is ``waiting``. Not thread-safe: one loop owns it.

    Raises :class:`ConfigError` for client settings that librdkafka refuses.
    """

    def __init__(
        self,
        kafka: KafkaConfig,
        *,
        client_id: str,
        queue_bytes: int,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.delivered = 0
        self.dropped = 0
        self.dropped_frames = 0
        self._bootstrap = kafka.bootstrap
        self._monotonic = monotonic
        self._warned_s: float | None = None
        self._unreachable = False
        self._broken = False
        self._settings: dict[str, Any] = {
            **producer_settings(kafka.bootstrap, client_id=client_id, queue_bytes=queue_bytes, extra=kafka.client),
            "error_cb": self._on_error,
        }
        self._producer = self._open()

    @property
    def waiting(self) -> int:
        """Messages that are neither delivered nor given up yet."""
        return len(self._producer)

    def send(self, message: Message) -> None:
        """Queue one message; one that does not fit is given up at once, and counted."""
        if self._broken:
            if self._monotonic() - self._opened_s < _REOPEN_EVERY_S:
                self._give_up(message.topic, "the producer met a fatal error and will be replaced")
                return
            self._restart()
        try:
            try:
                self._produce(message)
            except BufferError:
                self.poll()  # a message holds its place until its delivery is noted
                self._produce(message)
        except BufferError:
            self._give_up(message.topic, f"the queue is full with {self.waiting} messages")
        except KafkaException as error:
            self._note_fatal(error)
            self._give_up(message.topic, str(error.args[0]))

    def poll(self) -> None:
        """Take note of what was delivered or failed; does not wait."""
        try:
            self._producer.poll(0)
        except KafkaException as error:
            self._note_fatal(error)

    def close(self, timeout_s: float = 5.0) -> None:
        """Wait for what is queued as long as that; then give up the rest and count it."""
        self._flush(timeout_s)
        if self.waiting:
            _LOG.warning("%d messages could not be sent to %s and are given up", self.waiting, self._bootstrap)
            self._producer.purge()
            self._flush(timeout_s)

    def _produce(self, message: Message) -> None:
        options: dict[str, Any] = {} if message.partition is None else {"partition": message.partition}
        self._producer.produce(
            message.topic,
            message.value,
            message.key,
            headers=list(message.headers),
            on_delivery=self._on_delivery,
            **options,
        )

    def _open(self) -> Producer:
        self._opened_s = self._monotonic()
        try:
            return Producer(self._settings, logger=_ClientLog())
        except KafkaException as error:
            raise ConfigError(f"kafka: librdkafka refuses the settings: {error.args[0]}; see kafka.client") from error

    def _restart(self) -> None:
        """Replace a producer that met a fatal error; what it held is given up and counted."""
        self._producer.purge()
        self._flush(1.0)
        self._broken = False
        self._producer = self._open()

    def _flush(self, timeout_s: float) -> None:
        # A fatal error waiting in the queue would come out of flush amid the delivery callbacks, and break them
        # (confluent-kafka 2.16: SystemError); poll lets it out alone.
        self.poll()
        try:
            self._producer.flush(timeout_s)
        except KafkaException as error:
            self._note_fatal(error)

    def _note_fatal(self, error: KafkaException) -> None:
        """A fatal error, which an idempotent producer does not survive, comes as an exception from any call."""
        reason: KafkaError = error.args[0]
        if reason.fatal() or reason.code() == KafkaError._FATAL:
            self._broken = True
            self._warn("Kafka at %s: %s; starting a new producer", self._bootstrap, reason.str())

    def _on_delivery(self, error: KafkaError | None, message: Delivered) -> None:
        if error is None:
            self.delivered += 1
            if self._unreachable:
                self._unreachable = False
                self._warned_s = None
                _LOG.warning("Kafka at %s takes messages again", self._bootstrap)
        else:
            self._give_up(str(message.topic()), error.str())

    def _give_up(self, topic: str, reason: str) -> None:
        self.dropped += 1
        self.dropped_frames += topic == TELEMETRY.name
        self._warn("a message for %s was given up (%d so far): %s", topic, self.dropped, reason)

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal():
            self._broken = True
        if error.code() in (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT, KafkaError._RESOLVE):
            self._unreachable = True
            self._warn(
                "no Kafka broker answers at %s (%s); messages wait in memory until then: check that it runs there, "
                "or name it by kafka.bootstrap or --bootstrap",
                self._bootstrap,
                error.str(),
            )
        else:
            self._warn("Kafka at %s: %s", self._bootstrap, error.str())

    def _warn(self, text: str, *args: object) -> None:
        """Warn at most every half minute: the counters hold the rest."""
        now_s = self._monotonic()
        if self._warned_s is None or now_s - self._warned_s >= _WARN_EVERY_S:
            self._warned_s = now_s
            _LOG.warning(text, *args)


class _ClientLog:
    """Takes librdkafka's own log, which repeats each failure for each connection: detail for debugging."""

    def log(self, level: int, text: str, *args: object) -> None:
        _LOG.debug(text, *args)
