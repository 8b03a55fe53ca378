"""Configuration of machines that may be bought and returned."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Annotated, Literal

import msgspec

from flyball_contracts.config.base import Count, NotNegative, Positive, Section

PoolName = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$", description="lower-case letters, digits and dashes, at most 63"
    ),
]
PoolKind = Literal[
    "auto_scaling_group",
    "fleet",
    "node_group",
    "instance_group",
    "resize_request",
    "scale_set",
    "node_pool",
    "partition",
    "machines",
]
_ALONE = ("auto_scaling_group", "fleet", "node_pool", "partition", "machines")  # they need no ``within``


class PoolsConfig(Section, frozen=True, kw_only=True):
    """When workers buy and return machines of the pools that actuators publish.

    A machine is bought for work that has found no room for a minute, not even by preemption, and returned once
    nothing has run on it for ``return_after_s``. Interruptible work waits, except for jobs that would miss their
    deadline.
    """

    return_after_s: NotNegative = 600.0


class PoolConfig(Section, frozen=True, kw_only=True):
    """One pool of machines, and the cloud resource behind it.

    Driver aws: ``kind`` is ``auto_scaling_group`` or ``node_group`` (in the EKS cluster ``within``) with its name in
    ``resource``, or ``fleet`` with the launch template of its machines in ``resource``. gcp: ``instance_group`` or
    ``resize_request``, both on a managed instance group of the zone ``within``. azure: ``scale_set``, in the resource
    group ``within``. slurm: ``partition``, whose nodes Slurm turns off and on. simulated: ``machines``, of the fleet's
    pool ``resource``. karpenter: ``node_pool``; ``per_machine`` is what each machine counts toward the limits of that
    NodePool, such as ``nvidia.com/gpu: 8``. ``zones`` are availability zones, or subnets of a fleet. A machine has
    ``instance_type`` and counts ``price_usd_per_hour``; the pool always has between ``min_machines`` and
    ``max_machines``. Workers buy from a pool once they know the ``gpus`` of a machine: the number by model, as
    inventories name it. If it is left out, they read it from the first machine.
    """

    name: PoolName
    kind: PoolKind
    resource: str
    instance_type: str
    max_machines: Count
    price_usd_per_hour: NotNegative
    within: str = ""
    per_machine: Mapping[str, Positive] = {}
    market: Literal["on_demand", "spot"] = "on_demand"
    zones: tuple[str, ...] = ()
    min_machines: Annotated[int, msgspec.Meta(ge=0)] = 0
    gpus: Mapping[str, Annotated[int, msgspec.Meta(ge=1, le=1024)]] = {}

    def __post_init__(self) -> None:
        """Reject a pool with contradictory sizes, and one without a resource."""
        if self.min_machines > self.max_machines:
            raise ValueError(f"min_machines is {self.min_machines} and max_machines {self.max_machines}; swap them")
        if not self.resource or not self.instance_type:
            raise ValueError("resource or instance_type is empty; name what holds the machines, and their type")
        if len(self.gpus) > 1:
            raise ValueError(f"gpus names {' and '.join(self.gpus)}; a machine of a pool has GPUs of one model")
        if (self.kind == "node_pool") != bool(self.per_machine):
            raise ValueError(
                "per_machine: a node_pool, and nothing else, has it: what a machine counts, such as nvidia.com/gpu: 8"
            )
        if self.kind not in _ALONE and not self.within:
            raise ValueError(f"within is empty; a {self.kind} is in a cluster, a zone or a resource group: name it")


def check_distinct(pools: Sequence[PoolConfig]) -> None:
    """Raise :class:`ValueError` if two pools of a cell sell the same machines: nodes show type, market and zone."""
    for one, other in combinations(pools, 2):
        same = (one.instance_type, one.market) == (other.instance_type, other.market)
        zones = set(one.zones) & set(other.zones) if one.zones and other.zones else {*one.zones, *other.zones, "any"}
        if same and zones:
            raise ValueError(
                f"platforms: pools {one.name!r} and {other.name!r} both have {one.market} machines of type "
                f"{one.instance_type} in one zone, so no machine can be counted as either's; make them one pool, or "
                "give each zones of its own"
            )
