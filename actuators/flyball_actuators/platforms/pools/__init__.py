"""Pools of machines in clouds: what all drivers that buy and return machines share."""

from collections.abc import Sequence
from importlib import import_module
from typing import cast

from flyball_actuators.platforms.base import Platform
from flyball_actuators.platforms.pools.backing import Busy as Busy
from flyball_contracts.config import ActuatorConfig, PlatformConfig
from flyball_contracts.errors import ConfigError
from flyball_contracts.records import Pool

CLOUDS = ("aws", "gcp", "azure")
POOLED = (*CLOUDS, "karpenter")
"""Drivers with pools of machines."""


def cloud(entry: PlatformConfig, where: str, busy: Busy) -> Platform:
    """The platform of an entry whose driver is a cloud; raises :class:`ConfigError`."""
    if not entry.pools:
        raise ConfigError(f"{where}.pools: none is named; list the machines that driver {entry.driver} may buy")
    module = import_module(f"flyball_actuators.platforms.{entry.driver}")  # the libraries of one cloud, not of all
    return cast(Platform, module.platform(entry, where, busy))


def pools_of(config: ActuatorConfig, now_ns: int) -> Sequence[Pool]:
    """The configured pools, as records to publish."""
    return [
        Pool(
            pool=pool.name,
            cell=entry.cells[0],
            time_ns=now_ns,
            platform=entry.driver,
            instance_type=pool.instance_type,
            market=pool.market,
            zones=pool.zones,
            min_machines=pool.min_machines,
            max_machines=pool.max_machines,
            price_usd_per_hour=pool.price_usd_per_hour,
            gpu_model=next(iter(pool.gpus), ""),
            gpus=sum(pool.gpus.values()),
        )
        for entry in config.platforms
        for pool in entry.pools
    ]
