"""Configuration of vertical right-sizing."""

from typing import Literal

from flyball_contracts.config.base import Section


class RightsizingConfig(Section, frozen=True):
    """What one replica should ask for: CPU, memory, and the part of a GPU.

    ``advise`` only says so, on the topic of proposals and the dashboard; ``act`` also decides. ``cost`` weighs too much
    against too little; ``vpa`` is the rule of the Kubernetes vertical pod autoscaler. Each workload is looked at once
    an hour, from a day after it was first seen.
    """

    mode: Literal["off", "advise", "act"] = "advise"
    policy: Literal["cost", "vpa"] = "cost"
