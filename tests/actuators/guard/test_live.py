"""Mode live is asked for knowingly, or not at all."""

import re
from collections.abc import Mapping
from threading import Event
from typing import Any

import pytest
from tests.actuators.loop import config_for

from flyball_actuators.platforms import make_platforms
from flyball_actuators.service import run_actuator
from flyball_contracts.config import ActuatorConfig, PlatformConfig
from flyball_contracts.errors import ConfigError

REAL = PlatformConfig(cells=("real",))
SIMULATED = PlatformConfig(cells=("fleet",), driver="simulated", url="http://127.0.0.1:1")
KNOWING: dict[str, Any] = {"allow": ("web-*",), "kill_switch": "/run/flyball/stop"}


def nothing(_cell: str, _workload: str) -> Mapping[str, str]:
    return {}


@pytest.mark.parametrize("platforms", [(REAL,), (SIMULATED, REAL)])
@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({**KNOWING, "allow": None}, r"actuator\.allow: mode live takes patterns .*name them, or set mode: dry_run"),
        ({**KNOWING, "kill_switch": ""}, r"actuator\.kill_switch: mode live takes a file .*name one"),
        ({**KNOWING, "clock": "event"}, r"actuator\.clock: event is for replays .*set clock: wall, or mode: dry_run"),
    ],
)
def test_live_on_a_real_platform_is_refused_until_it_is_meant(
    platforms: tuple[PlatformConfig, ...], settings: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        make_platforms(ActuatorConfig(mode="live", platforms=platforms, **settings), nothing)
    with pytest.raises(ConfigError, match=says):
        run_actuator(config_for("127.0.0.1:1", "g", mode="live", platforms=platforms, **settings), stop=Event())
    make_platforms(ActuatorConfig(mode="dry_run", platforms=platforms, **settings), nothing)


def test_live_that_is_meant_starts() -> None:
    make_platforms(ActuatorConfig(mode="live", platforms=(REAL, SIMULATED), **KNOWING), nothing)
    every: dict[str, Any] = {**KNOWING, "allow": ("*",)}
    make_platforms(ActuatorConfig(mode="live", platforms=(REAL,), **every), nothing)
    anywhere = PlatformConfig()
    for allow, cells in (("**", "*"), ("*", "?*"), ("*?*", "**")):
        settings: dict[str, Any] = {**KNOWING, "allow": (allow,), "platforms": (PlatformConfig(cells=(cells,)),)}
        with pytest.raises(ConfigError, match=rf"actuator\.allow: '{re.escape(allow)}' lets mode live act on each"):
            make_platforms(ActuatorConfig(mode="live", **settings), nothing)
    says = (
        r"actuator\.allow: '\*' lets mode live act on each .* actuator\.platforms\[1\] answers for; name the workloads"
    )
    with pytest.raises(ConfigError, match=says):
        make_platforms(ActuatorConfig(mode="live", platforms=(REAL, anywhere), **every), nothing)
    make_platforms(ActuatorConfig(mode="dry_run", platforms=(anywhere,), **every), nothing)
    make_platforms(ActuatorConfig(mode="live", platforms=(anywhere,), **KNOWING), nothing)


def test_a_simulated_fleet_harms_nobody() -> None:
    make_platforms(ActuatorConfig(mode="live", platforms=(SIMULATED,), clock="event"), nothing)
    make_platforms(ActuatorConfig(mode="live"), nothing)
