"""The simulated fleet, which speaks the interface of webhooks, and checks nodes and buys machines besides."""

from flyball_actuators.platforms.base import Capabilities, Subject
from flyball_actuators.platforms.webhook import WebhookPlatform


class SimulatedPlatform(WebhookPlatform):
    """One simulated cell and the machines of its pools; the fleet's event time is the platform's time."""

    name = "simulated"
    capabilities = Capabilities(
        kinds=WebhookPlatform.capabilities.kinds | {"Check"},
        tracks=True,
        about=frozenset[Subject]({"workload", "node", "pool"}),
        promises=WebhookPlatform.capabilities.promises,
    )
