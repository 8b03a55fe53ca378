"""Counters of a lane: what was used, and what was not and why."""

import msgspec


class LaneStats(msgspec.Struct):
    """Messages and ticks since the lane was made; every message ends in exactly one of the first nine."""

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
