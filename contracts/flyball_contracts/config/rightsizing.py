"""Configuration of vertical right-sizing."""

from typing import Annotated, Literal

import msgspec

from flyball_contracts.config.base import NotNegative, Positive, Ratio, Section

Stakes = Annotated[float, msgspec.Meta(gt=1, le=1e9)]


class RightsizingConfig(Section, frozen=True):
    """What one replica should ask for: CPU, memory, and the part of a GPU.

    ``advise`` only says so, on the topic of proposals and the dashboard; ``act`` also decides. ``cost`` weighs too much
    against too little; ``vpa`` is the rule of the Kubernetes vertical pod autoscaler. Each workload is looked at once
    in ``every_s``, from ``after_s`` after it was first seen; changes of at most ``least_change`` are not worth a word.

    To be killed for want of memory costs as much as ``kill_hours`` hours of all the memory it ever used; a core or GPU
    that is lacking costs ``slow_ratio`` times one too many.
    """

    mode: Literal["off", "advise", "act"] = "advise"
    policy: Literal["cost", "vpa"] = "cost"
    every_s: Positive = 3_600.0
    after_s: NotNegative = 86_400.0
    least_change: Ratio = 0.15
    kill_hours: Stakes = 120.0
    slow_ratio: Stakes = 20.0
