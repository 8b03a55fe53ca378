"""``flyball feed``."""

import sys
from pathlib import Path

import click
from rich.console import Console

from flyball_cli.options import Pulse, health_option, until_signal, with_config
from flyball_contracts.config import Config


@click.command("feed")
@with_config
@health_option
@click.option("--once", is_flag=True, help="Ask each feed once, print a table, send nothing.")
def command(config: Config, health_file: Path | None, once: bool) -> None:
    """Send carbon and price curves of the grid to Kafka.

    The feeds are under `feeds` in the configuration; tokens are read from environment variables that it names.
    With --once the exit status is 1 when a feed fails.

    \b
    Examples:
      flyball feed --config /etc/flyball/flyball.yaml --once
      ELECTRICITYMAPS_TOKEN=... flyball feed --config /etc/flyball/flyball.yaml
    """
    from flyball_collectors.feeds import fetch_once, run_feeds
    from flyball_contracts.kafka.preflight import preflight

    if once:
        from flyball_collectors.feeds.table import render

        answers = fetch_once(config)
        Console().print(render(answers))
        sys.exit(any(answer.error for answer in answers))
    pulse = Pulse(health_file)

    with until_signal() as stop:

        def wait(seconds: float) -> bool:
            pulse.beat()
            return stop.wait(seconds)

        preflight(config, "feed", stop=stop, patient=True)
        report = run_feeds(config, stop=stop, wait=wait)
    sent = sum(counts.sent for counts in report.feeds.values())
    failed = sum(counts.failed for counts in report.feeds.values())
    click.echo(f"{sent} curves sent, {failed} requests failed, {report.dropped} messages dropped", err=True)
