"""The simulated fleet, which speaks the interface of webhooks, and checks nodes besides."""

from flyball_actuators.platforms.base import Capabilities
from flyball_actuators.platforms.webhook import WebhookPlatform


class SimulatedPlatform(WebhookPlatform):
    """One simulated cell; the fleet's event time is the platform's time."""

    name = "simulated"
    capabilities = Capabilities(
        kinds=WebhookPlatform.capabilities.kinds | {"Check"},
        tracks=True,
        about=frozenset({"workload", "node"}),
        promises=WebhookPlatform.capabilities.promises,
    )
