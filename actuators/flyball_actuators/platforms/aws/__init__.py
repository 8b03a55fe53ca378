"""Pools of machines on AWS: Auto Scaling groups, EC2 Fleet, and node groups of EKS."""

from flyball_actuators.platforms.aws.api import Aws
from flyball_actuators.platforms.aws.fleet import Fleet
from flyball_actuators.platforms.aws.group import Group
from flyball_actuators.platforms.aws.node_group import NodeGroup
from flyball_actuators.platforms.pools.backing import Backing, Busy
from flyball_actuators.platforms.pools.platform import PoolPlatform
from flyball_contracts.config import PlatformConfig
from flyball_contracts.errors import ConfigError


def platform(entry: PlatformConfig, where: str, busy: Busy) -> PoolPlatform:
    """The platform of an entry; raises :class:`ConfigError`."""
    if not entry.region:
        raise ConfigError(f"{where}.region: none is named; name the one of the pools, such as eu-west-1")
    for i, pool in enumerate(entry.pools):
        if pool.kind not in ("auto_scaling_group", "fleet", "node_group"):
            raise ConfigError(
                f"{where}.pools[{i}].kind: aws has no {pool.kind}; use auto_scaling_group, fleet or node_group"
            )
    aws, cell = Aws(entry, where), entry.cells[0]
    backings: dict[str, Backing] = {}
    for pool in entry.pools:
        if pool.kind == "auto_scaling_group":
            backings[pool.name] = Group(aws, pool, lambda: busy(cell))
        elif pool.kind == "fleet":
            backings[pool.name] = Fleet(aws, pool, lambda: busy(cell))
        else:
            backings[pool.name] = NodeGroup(aws, pool)
    return PoolPlatform(entry, backings)
