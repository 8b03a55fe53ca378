"""``flyball agent``."""

from pathlib import Path

import click
from rich.console import Console

from flyball_cli.options import Pulse, common, configured, health_option, until_signal


@click.command("agent")
@common
@health_option
@click.option("--once", is_flag=True, help="Measure once, print a table, send nothing.")
def command(
    config_path: Path | None, bootstrap: str | None, log_level: str, health_file: Path | None, once: bool
) -> None:
    r"""Measure this node and send its telemetry, events and inventory to Kafka.

    \b
    Examples:
      flyball agent --once
      flyball agent --config /etc/flyball/flyball.yaml --bootstrap kafka-1:9092
    """
    from flyball_collectors.agent.run import read_once, run_agent

    config = configured(config_path, bootstrap, log_level)
    if once:
        from flyball_collectors.agent.table import render

        seen = read_once(config)
        Console().print(render(seen.readings, seen.inventory))
        return
    pulse = Pulse(health_file)

    with until_signal() as stop:

        def wait(seconds: float) -> bool:
            pulse.beat()
            return stop.wait(seconds)

        report = run_agent(config, stop=stop, wait=wait)
    click.echo(
        f"{report.frames} frames in {report.ticks} ticks; {report.delivered} messages delivered, "
        f"{report.spooled} on disk, {report.dropped} dropped",
        err=True,
    )
