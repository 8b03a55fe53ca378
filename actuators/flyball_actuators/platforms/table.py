"""Capabilities of each driver."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast

from flyball_actuators.platforms import Platforms, Served
from flyball_actuators.platforms.autoscaler import AutoscalerPlatform
from flyball_actuators.platforms.base import Capabilities, Platform
from flyball_actuators.platforms.docker import DockerPlatform
from flyball_actuators.platforms.inventory import InventoryPlatform
from flyball_actuators.platforms.karpenter import KarpenterPlatform
from flyball_actuators.platforms.kubernetes import KubernetesPlatform
from flyball_actuators.platforms.kueue import KueuePlatform
from flyball_actuators.platforms.pools import CLOUDS
from flyball_actuators.platforms.pools.platform import PoolPlatform
from flyball_actuators.platforms.simulated import SimulatedPlatform
from flyball_actuators.platforms.slurm import SlurmPlatform
from flyball_actuators.platforms.webhook import WebhookPlatform
from flyball_contracts.config import PlatformConfig

DRIVERS: Mapping[str, Capabilities] = {
    "kubernetes": KubernetesPlatform.capabilities,
    "kueue": KueuePlatform.capabilities,
    "autoscaler": AutoscalerPlatform.capabilities,
    "slurm": SlurmPlatform.capabilities._replace(
        about=SlurmPlatform.capabilities.about | PoolPlatform.capabilities.about  # nodes that are powered down
    ),
    "docker": DockerPlatform.capabilities,
    "webhook": WebhookPlatform.capabilities,
    "karpenter": KarpenterPlatform.capabilities,
    **dict.fromkeys(CLOUDS, PoolPlatform.capabilities),
    "simulated": SimulatedPlatform.capabilities,
    "inventory": InventoryPlatform.capabilities,
}
"""Capabilities by the driver's name in the configuration."""


class _Named(NamedTuple):
    name: str
    capabilities: Capabilities


def described(entries: Sequence[PlatformConfig]) -> Platforms:
    """The platforms of a configuration, by their capabilities alone: they call nothing, and can carry out nothing."""
    known = (cast("Platform", _Named(entry.driver, DRIVERS[entry.driver])) for entry in entries)
    served = [Served(one.cells, can, one.poll_s, one.workloads) for one, can in zip(entries, known, strict=True)]
    return Platforms(served, live=True)
