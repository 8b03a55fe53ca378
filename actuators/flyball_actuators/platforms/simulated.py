"""The simulated fleet, which speaks the interface of webhooks."""

from flyball_actuators.platforms.base import Subject
from flyball_actuators.platforms.webhook import WebhookPlatform

_BOTH = frozenset[Subject]({"workload", "pool"})


class SimulatedPlatform(WebhookPlatform):
    """One simulated cell and the machines of its pools; the fleet's event time is the platform's time."""

    name = "simulated"
    capabilities = WebhookPlatform.capabilities._replace(about=_BOTH)
