"""Decisions about pools, and how one that was cut short is settled."""

from tests.actuators.samples import CELL, scale

from flyball_actuators.platforms import Handle, Platform, PlatformError, Rejected
from flyball_contracts.config import PoolConfig
from flyball_contracts.records import Scale


def buy(pool: PoolConfig, before: int, after: int, id_: str = "d1") -> Scale:
    """Scale a pool."""
    return scale(id_, workload=f"pool:{pool.name}", cell=CELL, before=before, after=after)


def settle(platform: Platform, decision: Scale, tries: int = 200) -> Handle | Rejected:
    """What the service does after a crash: find the operation, and submit only where there never was one."""
    for _ in range(tries):
        try:
            found = platform.find(decision, None)
            if found is not None:
                return found
            observed = platform.observe(decision)
            return observed if isinstance(observed, Rejected) else platform.submit(decision, observed, dry_run=False)
        except PlatformError:
            continue
    raise AssertionError("it was never settled")
