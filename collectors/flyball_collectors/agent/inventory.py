"""The inventory that the agent publishes beside its frames."""

from collections.abc import Iterable, Sequence

import numpy as np
from msgspec.structs import replace

from flyball_collectors.agent.identity import Identity
from flyball_collectors.agent.last_inventory import LastInventory
from flyball_collectors.base import KeyedReading, Parts, Place, Reading
from flyball_collectors.parameters import AgentParameters
from flyball_contracts.config import AgentConfig
from flyball_contracts.config.constants import with_constants
from flyball_contracts.metrics import layout_of
from flyball_contracts.records import Allocation, Device, Inventory
from flyball_contracts.records.inventory import CordonState


def build_inventory(
    config: AgentConfig, identity: Identity, parts: Iterable[Parts], *, epoch: int, time_ns: int
) -> Inventory:
    """Inventory of this node: its place from the configuration or the cloud, its parts from the collectors."""
    found = list(parts)
    place = next((part.place for part in found if part.place != Place()), Place())
    cordons: list[CordonState] = [part.cordon for part in found if part.cordon]
    return Inventory(
        node=identity.node,
        cell=config.cell,
        epoch=epoch,
        time_ns=time_ns,
        boot_id=identity.boot_id,
        devices=tuple(device for part in found for device in part.devices),
        allocations=merge_allocations(part.allocations for part in found),
        provider=config.provider or place.provider,
        region=config.region or place.region,
        availability_zone=place.availability_zone,
        zone=config.zone,
        instance_type=config.instance_type or place.instance_type,
        capacity_type=config.capacity_type or place.capacity_type or "owned",
        price_usd_per_hour=config.price_usd_per_hour,
        cpu_count=next((part.cpu_count for part in found if part.cpu_count is not None), None),
        memory_bytes=next((part.memory_bytes for part in found if part.memory_bytes is not None), None),
        driver_version=next((part.driver_version for part in found if part.driver_version), ""),
        numa=tuple(node for part in found for node in part.numa),
        gateways=tuple(gateway for part in found for gateway in part.gateways),
        schedulable=all(part.schedulable for part in found),
        rack=config.rack,
        leaf=config.leaf,
        cordon=cordons[0] if cordons else "",
    )


def merge_allocations(found: Iterable[Sequence[Allocation]]) -> tuple[Allocation, ...]:
    """One allocation for each (workload, replica), in the order of these.

    If several collectors report one, the first with devices counts, else the first with a runtime, else the first.
    """
    merged: dict[tuple[str, str], Allocation] = {}
    for allocations in found:
        for one in allocations:
            known = merged.setdefault((one.workload, one.replica), one)
            if (bool(one.devices), bool(one.runtime)) > (bool(known.devices), bool(known.runtime)):
                merged[one.workload, one.replica] = one
    return tuple(merged[key] for key in sorted(merged))


def lay_out(reading: KeyedReading, allocations: Sequence[Allocation]) -> Reading:
    """The reading with one row for each allocation, in their order; NaN for those without a row."""
    values = np.full((len(allocations), len(layout_of(reading.schema))), np.nan, np.float32)
    for place, one in enumerate(allocations):
        row = reading.rows.get((one.workload, one.replica))
        if row is not None:
            values[place] = row
    return Reading(reading.schema, values)


def rows_of(reading: Reading | KeyedReading, allocations: Sequence[Allocation]) -> Reading:
    """The reading in the inventory's order of rows."""
    return lay_out(reading, allocations) if isinstance(reading, KeyedReading) else reading


class InventoryKeeper:
    """Determines when the inventory is sent: at the start, on a change, and periodically.

    Epochs start at the time of the first tick in nanoseconds and rise by one with each change. Neither they nor the
    times of inventories fall, since readers keep the later one; ``last`` ensures this over restarts, although the clock
    may be set back. A repeated inventory is the same record. ``current`` is the inventory in force, ``None`` before the
    first.
    """

    def __init__(self, config: AgentConfig, identity: Identity, last: LastInventory) -> None:
        self._config = config
        self._last = last
        self._repeat_ns = with_constants(AgentParameters, config).inventory_period_s * 1e9
        self._identity = identity
        self._parts: list[Parts] | None = None
        self._sent_ns = 0
        self.current: Inventory | None = None

    @property
    def epoch(self) -> int:
        """Epoch of the inventory in force; 0 before the first."""
        return self.current.epoch if self.current else 0

    @property
    def allocations(self) -> tuple[Allocation, ...]:
        """Allocations of the inventory in force, the rows of its frames; none before the first."""
        return self.current.allocations if self.current else ()

    @property
    def devices(self) -> tuple[Device, ...]:
        """Devices of the inventory in force; none before the first."""
        return self.current.devices if self.current else ()

    def reconfigure(self, config: AgentConfig) -> None:
        """Use another configuration; its changes are sent at the next tick."""
        self._config, self._parts = config, None

    def due(self, parts: list[Parts], time_ns: int) -> Inventory | None:
        """Inventory to send now, or ``None``; call at each tick, before the frames."""
        current = self.current
        if current is None or parts != self._parts:
            last = self._last
            last.advance(time_ns, least_epoch=time_ns if current is None else 0)
            current = build_inventory(self._config, self._identity, parts, epoch=last.epoch, time_ns=last.time_ns)
        elif abs(time_ns - self._sent_ns) < self._repeat_ns:  # the clock may be set back
            return None
        self.current, self._parts, self._sent_ns = current, parts, time_ns
        return current

    def last(self, time_ns: int) -> Inventory | None:
        """Inventory that announces the agent's stop; ``None`` before the first inventory."""
        now = self.current
        if now is None:
            return None
        self._last.advance(time_ns)
        return replace(now, epoch=self._last.epoch, time_ns=self._last.time_ns, agent="stopped")
