"""Requests a broker's topics in a way that a signal can interrupt."""

import time
from threading import Event
from typing import TYPE_CHECKING, Protocol

from confluent_kafka import KafkaError, KafkaException

from flyball_contracts.errors import Stopped

if TYPE_CHECKING:  # a megabyte that agents do without
    from confluent_kafka.admin._metadata import ClusterMetadata

SLICE_S = 0.5
LAST_S = 3.0
_AGAIN_S = 0.05
_AWAY = (KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN)


class TopicLister(Protocol):
    """A consumer, a producer or an admin client."""

    def list_topics(self, topic: str = ..., timeout: float = ...) -> "ClusterMetadata":
        """Return the broker's metadata of its topics."""
        ...


def list_topics(
    client: TopicLister, within_s: float, stop: Event | None = None, topic: str | None = None
) -> "ClusterMetadata":
    """Return the broker's metadata of all topics, or of one.

    The client waits in C, where no signal is handled. So each request waits for :data:`SLICE_S` seconds, and the last
    one for :data:`LAST_S`, which a slow broker may need. Raises ``KafkaException`` without a response within
    ``within_s`` seconds, and :class:`Stopped` when ``stop`` is set meanwhile.
    """
    give_up_s = time.monotonic() + within_s
    while True:
        left_s = give_up_s - time.monotonic()
        last = left_s <= LAST_S
        wait_s = max(left_s, _AGAIN_S) if last else SLICE_S
        try:
            return client.list_topics(timeout=wait_s) if topic is None else client.list_topics(topic, timeout=wait_s)
        except KafkaException as error:
            if last or error.args[0].code() not in _AWAY:
                raise
        raise_if_stopped(stop)
        time.sleep(_AGAIN_S)


def raise_if_stopped(stop: Event | None) -> None:
    """Raise :class:`Stopped` when ``stop`` is set."""
    if stop is not None and stop.is_set():
        raise Stopped("ended while waiting for a broker")
