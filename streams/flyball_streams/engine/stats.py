"""Counters of a lane: messages used, and messages not used by reason."""

import msgspec

from flyball_streams.engine.gate import Arrival


class LaneStats(msgspec.Struct):
    """Messages and ticks since the lane was created; every message counts in exactly one of the first nine.

    ``gaps`` are missing frames, ``superseded`` frames of an inventory that was replaced within their tick. ``waiting``
    and ``without_spec`` (workloads that run without a specification) are current values.
    """

    used: int = 0
    duplicates: int = 0
    late: int = 0
    early: int = 0
    undecodable: int = 0
    unfit: int = 0
    unknown_inventory: int = 0
    ignored: int = 0
    waiting: int = 0
    gaps: int = 0
    rows: int = 0
    ticks: int = 0
    records: int = 0
    superseded: int = 0
    without_spec: int = 0


def count(stats: LaneStats, arrival: Arrival) -> None:
    """Count a message by the verdict of the gate."""
    if arrival == "ok":
        stats.used += 1
    elif arrival == "late":
        stats.late += 1
    else:
        stats.early += 1
