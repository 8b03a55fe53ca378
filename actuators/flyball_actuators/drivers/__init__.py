"""Drivers carry out decisions on a platform; the registry finds one by its name."""

from collections.abc import Callable, Mapping

from flyball_actuators.drivers.base import Answer as Answer, Driver as Driver
from flyball_actuators.drivers.dry_run import DryRun as DryRun
from flyball_contracts.errors import ConfigError

DRIVERS: Mapping[str, Callable[[], Driver]] = {"dry_run": DryRun}


def make_driver(name: str) -> Driver:
    """A new driver; ``ConfigError`` names the known ones when there is none of that name."""
    make = DRIVERS.get(name)
    if make is None:
        raise ConfigError(f"actuator.driver: {name!r} is not known; use one of: {', '.join(sorted(DRIVERS))}")
    return make()
