"""Machines that can be bought and returned."""

from typing import Annotated, Literal

import msgspec

from flyball_contracts.records.base import Record, TimeNs
from flyball_contracts.records.commands.decisions import AnyDecision

Market = Literal["on_demand", "spot"]
Machines = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]


class Pool(Record, frozen=True, kw_only=True):
    """Machines of one kind in one cell that Flyball may buy and return; compacted by pool.

    ``platform`` is the driver that holds it, ``instance_type`` the cloud's name of the machine, and ``zones`` are those
    in which it may be. ``price_usd_per_hour`` is what the budget counts for one machine. The guard uses its owner's
    configuration (``actuator.platforms``); this record publishes it to others. A machine has ``gpus`` GPUs of
    ``gpu_model``, as inventories name it (empty and 0: unknown until one was seen), and is ready ``start_s`` after it
    was requested.
    """

    pool: str
    cell: str
    time_ns: TimeNs
    platform: str
    instance_type: str
    market: Market
    max_machines: Machines
    price_usd_per_hour: float
    min_machines: Machines = 0
    zones: tuple[str, ...] = ()
    gpu_model: str = ""
    gpus: Annotated[int, msgspec.Meta(ge=0, le=1024)] = 0
    start_s: Annotated[float, msgspec.Meta(ge=0, le=1e9)] = 300.0


def decision_key(decision: AnyDecision) -> str:
    """Key of a decision on its topic: the cell.

    One key means one partition, so one actuator at a time acts on a cell, and keeps its limits and its budget.
    """
    return decision.cell
