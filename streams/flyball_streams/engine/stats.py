"""Counters of a lane: what was used, and what was not and why."""

import msgspec

from flyball_streams.engine.gate import Arrival


class LaneStats(msgspec.Struct):
    """Messages and ticks since the lane was made; every message ends in exactly one of the first nine.

    ``gaps`` are frames that never came, ``superseded`` frames of an inventory that was replaced within their tick.
    ``waiting`` and ``without_spec`` (workloads that run and have no specification) are as of now.
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
    """Count a message by what the gate said to it."""
    if arrival == "ok":
        stats.used += 1
    elif arrival == "late":
        stats.late += 1
    else:
        stats.early += 1
