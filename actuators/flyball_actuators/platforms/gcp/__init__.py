"""Pools of machines on Google Cloud: managed instance groups, resized at once or by resize requests."""

from flyball_actuators.platforms.gcp.api import Gcp
from flyball_actuators.platforms.gcp.group import InstanceGroup
from flyball_actuators.platforms.gcp.resize_request import ResizeRequests
from flyball_actuators.platforms.pools.backing import Backing, Busy
from flyball_actuators.platforms.pools.platform import PoolPlatform
from flyball_contracts.config import PlatformConfig
from flyball_contracts.errors import ConfigError


def platform(entry: PlatformConfig, where: str, busy: Busy) -> PoolPlatform:
    """The platform of an entry; raises :class:`ConfigError`."""
    if not entry.account:
        raise ConfigError(f"{where}.account: none is named; name the project of the pools")
    for i, pool in enumerate(entry.pools):
        if pool.kind not in ("instance_group", "resize_request"):
            raise ConfigError(f"{where}.pools[{i}].kind: gcp has no {pool.kind}; use instance_group or resize_request")
    gcp, cell = Gcp(entry, where), entry.cells[0]
    backings: dict[str, Backing] = {}
    for pool in entry.pools:
        kind = InstanceGroup if pool.kind == "instance_group" else ResizeRequests
        backings[pool.name] = kind(gcp, pool, lambda: busy(cell))
    return PoolPlatform(entry, backings)
