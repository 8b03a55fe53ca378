"""Capabilities of each driver."""

from collections.abc import Mapping

from flyball_actuators.platforms.autoscaler import AutoscalerPlatform
from flyball_actuators.platforms.base import Capabilities
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
