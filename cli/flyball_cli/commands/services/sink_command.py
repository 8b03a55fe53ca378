"""``flyball sink``."""

from pathlib import Path

import click

from flyball_cli.options import health_option, until_signal, with_config
from flyball_contracts.config import Config


@click.command("sink")
@click.argument("kind", type=click.Choice(["influx"]))
@with_config
@health_option
def command(kind: str, config: Config, health_file: Path | None) -> None:
    """Write telemetry, demand, forecasts, decisions and outcomes to a time-series store.

    The token is read from the environment variable INFLUX_TOKEN.

    \b
    Example:
      INFLUX_TOKEN=... flyball sink influx --config /etc/flyball/flyball.yaml
    """
    from flyball_contracts.kafka.preflight import preflight
    from flyball_streams.sinks.influx import run_influx_sink

    with until_signal(health_file) as stop:
        preflight(config, "sink", stop=stop)
        run_influx_sink(config.kafka, config.influx, stop=stop)
