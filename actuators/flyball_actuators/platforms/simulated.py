"""The simulated fleet: the webhook interface, and node checks and pools of machines as well."""

from flyball_actuators.platforms.base import Capabilities, Subject
from flyball_actuators.platforms.webhook import WebhookPlatform


class SimulatedPlatform(WebhookPlatform):
    """One simulated cell and the machines of its pools; the platform's time is the fleet's event time."""

    name = "simulated"
    capabilities = Capabilities(
        kinds=WebhookPlatform.capabilities.kinds | {"Check"},
        tracks=True,
        about=frozenset[Subject]({"workload", "node", "pool"}),
        promises=WebhookPlatform.capabilities.promises._replace(node=True),
    )
