"""The simulated fleet, which speaks the interface of webhooks."""

from flyball_actuators.platforms.webhook import WebhookPlatform


class SimulatedPlatform(WebhookPlatform):
    """One simulated cell; the fleet's event time is the platform's time."""

    name = "simulated"
