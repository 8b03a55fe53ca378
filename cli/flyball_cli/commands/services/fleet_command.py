"""``flyball fleet``."""

import math
import time
from pathlib import Path
from typing import Any, NamedTuple

import click
import msgspec

from flyball_cli.options import Finite, common, configured, health_option, until_signal
from flyball_contracts.config import FleetConfig, load_config, located


class Options(NamedTuple):
    """The options as they were given."""

    description: Path | None
    config_path: Path | None
    bootstrap: str | None
    log_level: str
    health_file: Path | None
    seed: int | None
    speed: float
    ticks: int | None
    tick_s: float | None
    listen: str | None
    baseline: bool
    state: Path | None


@click.command("fleet")
@click.argument("description", required=False, type=click.Path(path_type=Path))
@common
@health_option
@click.option("--seed", type=click.IntRange(0, 2**63 - 1), help="Seed; overrides the description.")
@click.option("--speed", type=Finite(0), default=1.0, show_default=True, help="Event seconds per second; 0 is unpaced.")
@click.option("--ticks", type=click.IntRange(1), help="Stop after so many ticks.")
@click.option("--tick", "tick_s", type=Finite(0, min_open=True), help="Seconds of a tick; overrides too.")
@click.option("--listen", metavar="HOST:PORT", help="Take operations here, as a platform; port 0 is any free one.")
@click.option("--baseline", is_flag=True, help="Let the same fleet run beside it without Flyball, for its account.")
@click.option("--state", type=click.Path(path_type=Path, dir_okay=False), help="File to go on from after an end.")
def command(**options: Any) -> None:
    """Send the frames, inventories, specifications and curves of a simulated fleet, described in YAML.

    With --listen it is a platform that obeys: the actuator's driver `simulated` scales, moves and preempts there.

    \b
    Example:
      flyball fleet infra/examples/fleet.yaml --bootstrap 127.0.0.1:9092 --seed 7
      flyball fleet --listen 127.0.0.1:9470
    """
    from flyball_simulator import Fleet, run_fleet

    given = Options(**options)
    host, _, port = (given.listen or "").rpartition(":")
    if given.listen is not None and not (host and port.isdecimal() and int(port) < 1 << 16):
        raise click.BadParameter(f"{given.listen!r} is no HOST:PORT, such as 127.0.0.1:9470", param_hint="--listen")
    config = configured(given.config_path, given.bootstrap, given.log_level)
    fleet = load_config(given.description, FleetConfig) if given.description else FleetConfig()
    if given.description is not None:
        with located(given.description):
            Fleet(fleet, start_ns=0)
    if given.seed is not None:
        fleet = msgspec.structs.replace(fleet, seed=given.seed)
    if given.tick_s is not None:
        fleet = msgspec.structs.replace(fleet, tick_s=given.tick_s)
    with until_signal(given.health_file) as stop:
        report = run_fleet(
            fleet,
            config.kafka,
            stop=stop,
            start_ns=time.time_ns(),
            speed=given.speed or math.inf,
            ticks=given.ticks,
            listen=given.listen,
            listening=lambda url: click.echo(f"platform: {url}"),
            baseline=given.baseline,
            state=given.state,
        )
    click.echo(f"{report.messages} messages in {report.ticks} ticks, {report.failed} failed", err=True)
