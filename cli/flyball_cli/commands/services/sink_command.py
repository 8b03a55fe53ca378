"""``flyball sink``."""

from pathlib import Path

import click

from flyball_cli.options import common, configured, health_option, until_signal


@click.command("sink")
@click.argument("kind", type=click.Choice(["influx"]))
@common
@health_option
def command(
    kind: str, config_path: Path | None, bootstrap: str | None, log_level: str, health_file: Path | None
) -> None:
    """Write telemetry, demand, forecasts, decisions and outcomes to a time-series store.

    The token is read from the environment variable INFLUX_TOKEN.

    \b
    Example:
      INFLUX_TOKEN=... flyball sink influx --config /etc/flyball/flyball.yaml
    """
    del kind
    from flyball_contracts.kafka.preflight import preflight
    from flyball_streams.sinks.influx import run_influx_sink

    config = configured(config_path, bootstrap, log_level)
    with until_signal(health_file) as stop:
        preflight(config, "sink", stop=stop)
        run_influx_sink(config.kafka, config.influx, stop=stop)
