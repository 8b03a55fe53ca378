"""Sends records and keeps each until the broker has acknowledged it."""

import logging
import time
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from confluent_kafka import KafkaError, Message as KafkaMessage

from flyball_contracts.codec import Message
from flyball_contracts.errors import TransportError
from flyball_contracts.kafka import Settings, open_producer

_LOG = logging.getLogger(__name__)
_POLL_S = 0.2

Delivered = Callable[[int], None]
"""Called with the offset at which a record was written."""


class _Sent(NamedTuple):
    """A message in flight; ``turn``: how often this process had lost its partition when the message was queued."""

    message: Message
    then: Delivered | None
    turn: int


class Outbox:
    """Sends in the background and in order, and sends failed messages again.

    A message older than ``fresh_s`` is sent again only when :meth:`step` allows it: its partition may belong to another
    process by then.
    """

    def __init__(self, settings: Settings, fresh_s: float) -> None:
        self.delivered = 0
        fresh = {"delivery.timeout.ms": round(1000 * fresh_s)}
        self._producer = open_producer({**settings, **fresh}, _LOG, "outcomes")
        self._failed: list[_Sent] = []
        self._turns: Counter[int | None] = Counter()
        self._waiting = 0

    def put(self, message: Message, then: Delivered | None = None) -> None:
        """Send a message; ``then`` is called from :meth:`step` or :meth:`flush` once it is written."""
        self._send(_Sent(message, then, self._turns[message.partition]))

    def _send(self, sent: _Sent) -> None:
        message = sent.message
        self._waiting += 1
        while True:
            try:
                self._producer.produce(
                    message.topic,
                    key=message.key,
                    value=message.value,
                    headers=[*message.headers],
                    partition=-1 if message.partition is None else message.partition,
                    on_delivery=lambda error, written: self._reported(sent, error, written),
                )
                return
            except BufferError:
                self._producer.poll(_POLL_S)  # full: wait for acknowledgements

    def step(self, *, again: bool = True) -> None:
        """Handle acknowledgements, and send failed messages ``again``; :class:`TransportError` on a fatal error."""
        self._producer.poll(0)
        if again and self._failed:
            failed, self._failed = self._failed, []
            for sent in failed:
                self._waiting -= 1
                if sent.turn == self._turns[sent.message.partition]:
                    self._send(sent)

    def give_up(self, partition: int) -> None:
        """Do not send messages of a partition again: another process owns it now."""
        self._turns[partition] += 1

    def flush(self, grace_s: float = 5.0) -> bool:
        """Wait at most ``grace_s`` for all acknowledgements; return whether all arrived."""
        ends_s = time.monotonic() + grace_s
        while self._waiting and time.monotonic() < ends_s:
            self._producer.flush(_POLL_S)
            self.step(again=False)
        if self._waiting:
            _LOG.warning("%d records were not acknowledged; they are published again at the next start", self._waiting)
        return not self._waiting

    def close(self) -> None:
        """Discard messages in flight."""
        self._producer.purge()
        self._producer.flush(_POLL_S)

    def _reported(self, sent: _Sent, error: KafkaError | None, written: KafkaMessage) -> None:
        if error is None:
            self._waiting -= 1
            self.delivered += 1
            if sent.then is not None:
                sent.then(written.offset() or 0)
            return
        if error.fatal():
            raise TransportError(f"records can no longer be sent: {error.str()}; start again")
        _LOG.info("a record on %s was not delivered: %s; it is sent again", sent.message.topic, error.str())
        self._failed.append(sent)
