"""Standing back after partitions were added: until then, a cell's actuator may have been another.

Each commit tells how many partitions there were when it was sent, and nobody acts without a commit. So who begins knows
with how many the group has acted last.
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
_TURN_S = 0.2
_TOLD = re.compile(r"partitions=(\d+)")


def committed_with(offsets: dict[int, int], partitions: int) -> list[TopicPartition]:
    """What to commit: an offset for each partition, with how many partitions there are."""
    return [TopicPartition(DECISIONS.name, p, offset, f"partitions={partitions}") for p, offset in offsets.items()]


def stand_back(consumer: Consumer, partitions: int, stop: Event, beat: Callable[[], object]) -> None:
    """Wait where the group has acted with fewer ``partitions`` only, until whoever did so has noticed.

    Raises :class:`TransportError` when the broker does not say what was committed.
    """
    try:
        found = consumer.committed([TopicPartition(DECISIONS.name, p) for p in range(partitions)], _ANSWER_S)
    except KafkaException as error:
        raise TransportError(f"what the group has committed is not known: {error.args[0].str()}") from error
    told = [_TOLD.fullmatch(part.metadata or "") for part in found]
    before = max((int(one[1]) for one in told if one is not None), default=partitions)
    if before >= partitions:
        return
    _LOG.warning(
        "%s has %d partitions, and the group acted when it had %d: nothing is done for %g s, until all have noticed",
        DECISIONS.name, partitions, before, STAND_BACK_S,
    )  # fmt: skip
    until_s = boot_s() + STAND_BACK_S
    while boot_s() < until_s and not stop.wait(_TURN_S):
        beat()
