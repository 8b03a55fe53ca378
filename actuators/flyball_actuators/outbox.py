"""Records on their way out: nothing is committed until the broker has acknowledged them."""

import logging
from threading import Event

from confluent_kafka import KafkaError, Producer

from flyball_contracts.codec import Message
from flyball_contracts.errors import TransportError
from flyball_contracts.kafka import Settings
from flyball_contracts.kafka_log import ClientLog

_LOG = logging.getLogger(__name__)
_POLL_S = 0.2


class Outbox:
    """Keeps each message until it is acknowledged, and sends it again when delivery failed."""

    def __init__(self, settings: Settings) -> None:
        self.delivered = 0
        told = ClientLog(_LOG, "outcomes", str(settings["bootstrap.servers"]))
        self._producer = Producer({**settings, "error_cb": told.on_error}, logger=told)
        self._failed: list[Message] = []
        self._waiting = 0

    def put(self, message: Message) -> None:
        """Send in the background, in order."""
        self._waiting += 1
        while True:
            try:
                self._producer.produce(
                    message.topic,
                    key=message.key,
                    value=message.value,
                    headers=[*message.headers],
                    on_delivery=lambda error, _: self._reported(message, error),
                )
                return
            except BufferError:
                self._producer.poll(_POLL_S)  # full: wait for acknowledgements

    def flush(self, stop: Event, grace_s: float = 5.0) -> bool:
        """Wait until all is acknowledged.

        False when ``stop`` was set and ``grace_s`` more did not suffice. Raises :class:`TransportError` when the
        producer can never deliver.
        """
        left_s = grace_s
        while self._waiting:
            self._producer.flush(_POLL_S)
            again, self._failed = self._failed, []
            for message in again:
                self._waiting -= 1
                self.put(message)
            if stop.is_set():
                left_s -= _POLL_S
                if left_s <= 0 and self._waiting:
                    _LOG.warning(
                        "%d records were not acknowledged; they are sent again at the next start", self._waiting
                    )
                    return False
        return True

    def close(self) -> None:
        """Give up what is still on its way."""
        self._producer.purge()
        self._producer.flush(_POLL_S)

    def _reported(self, message: Message, error: KafkaError | None) -> None:
        if error is None:
            self._waiting -= 1
            self.delivered += 1
            return
        if error.fatal():
            raise TransportError(f"records can no longer be sent: {error.str()}; start again")
        _LOG.warning("a record on %s was not delivered: %s; it is sent again", message.topic, error.str())
        self._failed.append(message)
