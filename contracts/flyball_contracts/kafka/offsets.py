"""Begin and end offsets of partitions."""

import logging
import time
from collections.abc import Iterable
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

_LOG = logging.getLogger(__name__)
_EARLIEST, _LATEST = -2, -1  # as times, they stand for the first and the last offset
_AGAIN_S = 0.1
_FORBIDDEN = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError._AUTHENTICATION,
)

Place = tuple[str, int]
"""Topic and partition."""


class Bounds(NamedTuple):
    """Offset of a partition's first message, and the one after its last."""

    first: int
    following: int


def ends(consumer: Consumer, places: Iterable[Place], timeout_s: float) -> dict[Place, int]:
    """Return the offset after the last message of each partition; those without an answer are left out.

    One request, which waits for at most ``timeout_s`` seconds.
    """
    return _ask(consumer, places, _LATEST, timeout_s)[0]


def bounds(consumer: Consumer, places: Iterable[Place], within_s: float = 10.0) -> dict[Place, Bounds]:
    """Return the bounds of each partition; retry until the broker has responded for all.

    A partition has no leader when it was just created, nor while its broker restarts. Raises ``KafkaException`` if the
    broker refuses access, or has not responded for all within ``within_s`` seconds.
    """
    wanted = list(places)
    give_up_s = time.monotonic() + within_s
    while True:
        left_s = max(_AGAIN_S, give_up_s - time.monotonic())
        following, error = _ask(consumer, wanted, _LATEST, left_s)
        if error is None:
            first, error = _ask(consumer, wanted, _EARLIEST, left_s)
            if error is None:
                return {place: Bounds(first[place], following[place]) for place in wanted}
        if error.code() in _FORBIDDEN or time.monotonic() > give_up_s:
            raise KafkaException(error)
        time.sleep(_AGAIN_S)


def _ask(
    consumer: Consumer, places: Iterable[Place], what: int, timeout_s: float
) -> tuple[dict[Place, int], KafkaError | None]:
    """Return the offsets that the broker reported, and one error if some are missing."""
    requests = [TopicPartition(*place, what) for place in places]
    if not requests:
        return {}, None
    try:
        answers = consumer.offsets_for_times(requests, timeout_s)
    except KafkaException as error:
        _LOG.info("where partitions end is not known: %s", error.args[0].str())
        return {}, error.args[0]
    found: dict[Place, int] = {}
    failed: KafkaError | None = None
    for answer in answers:
        if answer.error is None:
            found[answer.topic, answer.partition] = answer.offset
        else:
            failed = answer.error
            _LOG.info("where %s/%d ends is not known: %s", answer.topic, answer.partition, failed.str())
    return found, failed
