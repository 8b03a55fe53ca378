"""State of a lane partition, for exact recovery."""

import msgspec

from flyball_contracts.records.base import TimeNs


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The arrays of one lane partition and the source offsets that they include.

    ``offsets`` maps ``topic/partition`` to the first offset that is *not* in the state. ``engine`` is the version of
    the state's format: a lane refuses a snapshot of another version. ``state`` is opaque to everything but the lane. A
    state larger than a message is cut: all ``parts`` of one ``time_ns`` in order make it up. ``topics`` are the ids of
    the source topics (empty: unknown): the offsets of a topic that was deleted mean nothing in one of the same name.
    """

    lane: str
    partition: int
    engine: str
    time_ns: TimeNs
    offsets: dict[str, int]
    state: bytes
    part: int = 0
    parts: int = 1
    topics: dict[str, str] = {}
