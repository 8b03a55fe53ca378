"""The inventory that the agent publishes beside its frames."""

from collections.abc import Iterable

from flyball_collectors.agent.identity import Identity
from flyball_collectors.base import Parts
from flyball_contracts.config import AgentConfig
from flyball_contracts.records import Inventory


def build_inventory(
    config: AgentConfig, identity: Identity, parts: Iterable[Parts], *, epoch: int, time_ns: int
) -> Inventory:
    """Inventory of this node: what the configuration says of the place, and the collectors of the parts."""
    found = list(parts)
    return Inventory(
        node=identity.node,
        cell=config.cell,
        epoch=epoch,
        time_ns=time_ns,
        boot_id=identity.boot_id,
        devices=tuple(device for part in found for device in part.devices),
        provider=config.provider,
        region=config.region,
        zone=config.zone,
        instance_type=config.instance_type,
        capacity_type=config.capacity_type,
        price_usd_per_hour=config.price_usd_per_hour,
        cpu_count=next((part.cpu_count for part in found if part.cpu_count is not None), None),
        memory_bytes=next((part.memory_bytes for part in found if part.memory_bytes is not None), None),
        driver_version=next((part.driver_version for part in found if part.driver_version), ""),
    )


class InventoryKeeper:
    """Says when the inventory has to be sent: at the start, on a change, and every so often.

    Epochs start at the time of the first tick in nanoseconds and rise by one with each change, so they rise over
    restarts too with nothing kept. Sent again unchanged, it is the same record.
    """

    def __init__(self, config: AgentConfig, identity: Identity) -> None:
        self._config = config
        self._identity = identity
        self._parts: list[Parts] | None = None
        self._sent_ns = 0
        self._current: Inventory | None = None

    @property
    def epoch(self) -> int:
        """Epoch of the inventory in force; 0 before the first."""
        return self._current.epoch if self._current else 0

    def due(self, parts: list[Parts], time_ns: int) -> Inventory | None:
        """Inventory to send now, or ``None``; ask at each tick, before the frames."""
        current = self._current
        if current is None or parts != self._parts:
            epoch = time_ns if current is None else current.epoch + 1
            current = build_inventory(self._config, self._identity, parts, epoch=epoch, time_ns=time_ns)
        elif abs(time_ns - self._sent_ns) < self._config.inventory_period_s * 1e9:  # the clock may be set back
            return None
        self._current, self._parts, self._sent_ns = current, parts, time_ns
        return current
