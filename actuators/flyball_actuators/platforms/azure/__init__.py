"""Pools of machines on Azure: virtual machine scale sets."""

from flyball_actuators.platforms.azure.api import Azure
from flyball_actuators.platforms.azure.scale_set import ScaleSet
from flyball_actuators.platforms.pools.backing import Backing, Busy
from flyball_actuators.platforms.pools.platform import PoolPlatform
from flyball_contracts.config import PlatformConfig
from flyball_contracts.errors import ConfigError


def platform(entry: PlatformConfig, where: str, busy: Busy) -> PoolPlatform:
    """The platform of an entry; raises :class:`ConfigError`."""
    if not entry.account:
        raise ConfigError(f"{where}.account: none is named; name the subscription of the pools")
    for i, pool in enumerate(entry.pools):
        if pool.kind != "scale_set":
            raise ConfigError(f"{where}.pools[{i}].kind: azure has no {pool.kind}; use scale_set")
    azure, cell = Azure(entry, where), entry.cells[0]
    backings: dict[str, Backing] = {pool.name: ScaleSet(azure, pool, lambda: busy(cell)) for pool in entry.pools}
    return PoolPlatform(entry, backings)
