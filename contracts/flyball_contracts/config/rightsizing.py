"""Configuration of vertical right-sizing."""

from typing import Literal

from flyball_contracts.config.base import Section


class RightsizingConfig(Section, frozen=True):
    """Requests of one replica: CPU, memory, and the share of a GPU.

    ``advise`` publishes a proposal, which the dashboard shows; ``act`` also decides. The rule weighs the cost of
    requesting too much against that of too little. Each workload is evaluated once an hour, from a day after it was
    first seen.
    """

    mode: Literal["off", "advise", "act"] = "advise"
