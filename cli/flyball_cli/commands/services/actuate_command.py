"""``flyball actuate``."""

from pathlib import Path

import click

from flyball_cli.options import Pulse, health_option, until_signal, with_config
from flyball_contracts.config import Config


@click.command("actuate")
@with_config
@health_option
def command(config: Config, health_file: Path | None) -> None:
    """Read decisions, put each through the guard, carry out what it allows, and answer with outcomes.

    The default mode is dry_run: it plans on the real state, says what it would do, and changes nothing.

    \b
    Example:
      flyball actuate --config /etc/flyball/flyball.yaml
    """
    from flyball_actuators.service import run_actuator
    from flyball_contracts.kafka.preflight import preflight

    with until_signal() as stop:
        preflight(config, "actuator", stop=stop)
        report = run_actuator(config, stop=stop, beat=Pulse(health_file).beat)
    opened = f", platforms gave no answer {report.breakers_opened} times" if report.breakers_opened else ""
    click.echo(f"{report.decisions} decisions, {dict(report.statuses)}{opened}", err=True)
