"""Decisions that were read and wait to be taken up: for room, or for outcomes of their partition or of others."""

from collections import deque
from typing import NamedTuple

from confluent_kafka import Message

from flyball_actuators.guard import Signature, urgency_of
from flyball_contracts.records import AnyDecision


class Read(NamedTuple):
    """A decision that was read; ``at_ms`` is when it was sent, ``read_s`` when it was read (monotonic).

    ``misplaced``: with the number of partitions that was known then, its cell belongs to another partition.
    """

    decision: AnyDecision
    offset: int
    at_ms: int
    signature: Signature | None
    message: Message
    read_s: float
    misplaced: bool


class _Part:
    """The waiting decisions of one partition."""

    def __init__(self) -> None:
        self.rescues: deque[Read] = deque()
        self.others: deque[Read] = deque()


class Backlog:
    """Queues by partition: rescues first, all others in the order in which they were read."""

    def __init__(self) -> None:
        self._parts: dict[int, _Part] = {}

    def __len__(self) -> int:
        return sum(len(part.rescues) + len(part.others) for part in self._parts.values())

    @property
    def partitions(self) -> list[int]:
        """Partitions that have waiting decisions."""
        return list(self._parts)

    def add(self, partition: int, read: Read) -> None:
        """Append a decision."""
        part = self._parts.setdefault(partition, _Part())
        (part.rescues if urgency_of(read.decision) == "rescue" else part.others).append(read)

    def earliest_ms(self, partition: int) -> int:
        """When the earliest waiting decision of a partition was sent; the partition must have one."""
        part = self._parts[partition]
        return min(queue[0].at_ms for queue in (part.rescues, part.others) if queue)

    def take(self, partition: int, *, rescues_only: bool) -> Read | None:
        """Remove and return the next decision of a partition; ``None`` if there is none."""
        part = self._parts.get(partition, _NONE)
        queue = part.rescues or (None if rescues_only else part.others)
        if not queue:
            return None
        read = queue.popleft()
        if not part.rescues and not part.others:
            del self._parts[partition]
        return read

    def forget(self, partition: int) -> None:
        """Drop a partition that another process now owns."""
        self._parts.pop(partition, None)


_NONE = _Part()
