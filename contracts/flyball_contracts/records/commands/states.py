"""State of what a decision is about."""

from collections.abc import Mapping

from flyball_contracts.records.base import Part
from flyball_contracts.records.commands.portion import Portion
from flyball_contracts.records.commands.resources import Resources


class SubjectState(Part, frozen=True, kw_only=True):
    """State of a decision's subject as the platform shows it, or should; ``None``: unknown, or not concerned.

    ``replicas`` are requested and ``ready`` of them serve. ``nodes`` are the nodes of the replicas that the decision
    names, by replica; a replica that is stopped has an empty node. ``version`` is the platform's own version of it.
    Of a pool, replicas are machines, and ``cost_usd_per_hour`` is what all pools of its cell cost together. Of a node,
    replicas are those that run on it, and it is ``suspended`` while it takes no work.
    """

    replicas: int | None = None
    ready: int | None = None
    nodes: Mapping[str, str] = {}
    power_limit_w: float | None = None
    resources: Resources | None = None
    mix: tuple[Portion, ...] = ()
    suspended: bool | None = None
    version: str = ""
    cost_usd_per_hour: float | None = None
