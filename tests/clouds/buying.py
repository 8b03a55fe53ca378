"""Decisions about pools, and how one that was cut short is settled."""

import time

from tests.actuators.samples import CELL, NOW, scale

from flyball_actuators.platforms import Handle, Platform, PlatformError, Rejected
from flyball_contracts.config import PoolConfig
from flyball_contracts.records import Scale, SubjectState


def buy(pool: PoolConfig, before: int, after: int, id_: str = "d1", *, time_ns: int = NOW) -> Scale:
    """Scale a pool."""
    return scale(id_, workload=f"pool:{pool.name}", cell=CELL, before=before, after=after, time_ns=time_ns)


def claimed(platform: Platform, decision: Scale) -> SubjectState:
    """What the claim of a decision says that the platform showed."""
    observed = platform.observe(decision)
    assert not isinstance(observed, Rejected), observed
    return observed


def settle(platform: Platform, decision: Scale, before: SubjectState, tries: int = 500) -> Handle | Rejected:
    """What the service does after a crash: find the operation, and submit only where there never was one.

    ``before`` is the state that the claim of the decision tells.
    """
    for _ in range(tries):
        try:
            found = platform.find(decision, before)
            if found is not None:
                return found
            observed = platform.observe(decision)
            return observed if isinstance(observed, Rejected) else platform.submit(decision, observed, dry_run=False)
        except PlatformError:
            time.sleep(0.005)
    raise AssertionError("it was never settled")
