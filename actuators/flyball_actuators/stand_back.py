"""A waiting period after partitions were added, during which a cell's former actuator may still act.

Each commit records the number of partitions when it was sent, and no process acts without a commit. So a starting
actuator knows with how many partitions the group last acted.
"""

import logging
import re
from collections.abc import Callable
from threading import Event

from confluent_kafka import Consumer, KafkaException, TopicPartition

from flyball_actuators.lease import STAND_BACK_S, boot_s
from flyball_contracts.errors import TransportError
from flyball_contracts.topics import DECISIONS

_LOG = logging.getLogger(__name__)
_ANSWER_S = 10.0
_STEP_S = 0.2
_PARTITIONS = re.compile(r"partitions=(\d+)")


def committed_with(offsets: dict[int, int], partitions: int) -> list[TopicPartition]:
    """Offsets to commit, each with the number of partitions as metadata."""
    return [TopicPartition(DECISIONS.name, p, offset, f"partitions={partitions}") for p, offset in offsets.items()]


def stand_back(consumer: Consumer, partitions: int, stop: Event, beat: Callable[[], object]) -> None:
    """If the group last acted with fewer partitions, wait until the actuators that did so have noticed.

    Raises :class:`TransportError` if committed offsets cannot be read.
    """
    try:
        found = consumer.committed([TopicPartition(DECISIONS.name, p) for p in range(partitions)], _ANSWER_S)
    except KafkaException as error:
        raise TransportError(f"what the group has committed is not known: {error.args[0].str()}") from error
    counts = [_PARTITIONS.fullmatch(part.metadata or "") for part in found]
    before = max((int(one[1]) for one in counts if one is not None), default=partitions)
    if before >= partitions:
        return
    _LOG.warning(
        "%s has %d partitions, and the group acted when it had %d: nothing is done for %g s, until all have noticed",
        DECISIONS.name, partitions, before, STAND_BACK_S,
    )  # fmt: skip
    until_s = boot_s() + STAND_BACK_S
    while boot_s() < until_s and not stop.wait(_STEP_S):
        beat()
