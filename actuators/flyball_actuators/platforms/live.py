"""Settings that mode ``live`` requires, so that it is not enabled by accident."""

from collections.abc import Iterable

from flyball_contracts.config import ActuatorConfig
from flyball_contracts.errors import ConfigError


def check_live(config: ActuatorConfig) -> None:
    """Raise :class:`ConfigError` for live settings that do not name what to act on and how to stop it.

    A configuration with only simulated platforms needs none of these settings.
    """
    if config.mode != "live" or all(entry.driver == "simulated" for entry in config.platforms):
        return
    if config.clock == "event":
        raise ConfigError(
            "actuator.clock: event is for replays and simulated platforms, not for mode live on others, where old "
            "decisions would count as new; set clock: wall, or mode: dry_run"
        )
    if config.allow is None:
        raise ConfigError(
            'actuator.allow: mode live takes patterns of the workloads that may be acted on, such as ["web-*"]; name '
            "them, or set mode: dry_run"
        )
    all_workloads, places = _for_all(config.allow), enumerate(config.platforms)
    everywhere = (i for i, entry in places if entry.driver != "simulated" and _for_all(entry.cells))
    at = next(everywhere, None) if all_workloads else None
    if at is not None:
        raise ConfigError(
            f"actuator.allow: {all_workloads!r} lets mode live act on each workload of each cell that "
            f'actuator.platforms[{at}] answers for; name the workloads, such as ["web-*"], or its cells'
        )
    if not config.kill_switch:
        raise ConfigError(
            "actuator.kill_switch: mode live takes a file that stops everything while it exists; name one in a folder "
            "that exists, or set mode: dry_run"
        )
    for i, entry in enumerate(config.platforms):
        if entry.pools and entry.budget_usd_per_hour is None:
            raise ConfigError(
                f"actuator.platforms[{i}].budget_usd_per_hour: mode live takes what all pools of the entry together "
                "may cost an hour; set it, or set mode: dry_run"
            )


def _for_all(patterns: Iterable[str]) -> str:
    """The first pattern that matches every name, or every name of some length or more; empty without one."""
    return next((one for one in patterns if "*" in one and not one.strip("*?")), "")
