"""``flyball dashboard``."""

from pathlib import Path

import click
import msgspec

from flyball_cli.options import health_option, until_signal, with_config
from flyball_contracts.config import Config


@click.command("dashboard")
@with_config
@health_option
@click.option("--port", type=click.IntRange(0, 65535), help="Port; 0 takes a free one.")
def command(config: Config, health_file: Path | None, port: int | None) -> None:
    """Serve the live page: what Flyball is worth, decisions and their effects, the fleet, carbon plans, incidents.

    \b
    Example:
      flyball dashboard --bootstrap kafka-1:9092 --port 8080
    """
    from flyball_contracts.kafka.preflight import preflight
    from flyball_streams.dashboard.run import run_dashboard

    if port is not None:
        config = msgspec.structs.replace(config, dashboard=msgspec.structs.replace(config.dashboard, port=port))
    with until_signal(health_file) as stop:
        preflight(config, "dashboard", stop=stop, patient=True)
        run_dashboard(config, stop=stop, ready=lambda url: click.echo(f"dashboard: {url}"))
