"""``flyball demo``."""

import socket
import sys
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from flyball_cli.extras import need
from flyball_cli.options import Finite, configured, until_signal


@click.command("demo")
@click.option(
    "--for",
    "for_s",
    type=Finite(min=1),
    metavar="SECONDS",
    help="How long, once all has started; until Ctrl-C by default.",
)
@click.option("--headless", is_flag=True, help="No dashboard; end with a table and an exit status.")
@click.option("--recording", type=click.Path(path_type=Path), help="Serve the demand of this recording.")
@click.option("--fleet", type=click.Path(path_type=Path), help="Description of the simulated fleet (YAML).")
@click.option("--seed", type=click.IntRange(0, 2**63 - 1), help="Seed of the simulated fleet.")
@click.option("--speed", type=Finite(min=0.01, max=3600.0), help="Event seconds per second.")
@click.option("--bootstrap", metavar="HOST:PORT", help="Use this Kafka instead of an embedded broker.")
@click.option("--port", type=click.IntRange(0, 65535), default=8080, show_default=True, help="Of the dashboard.")
@click.option("--broker-port", type=click.IntRange(0, 65535), help="Where clients find the embedded broker.")
@click.option(
    "--config", "config_path", type=click.Path(path_type=Path), help="YAML file; see `flyball config example`."
)
@click.option("--log-level", default="WARNING", show_default=True)
def command(config_path: Path | None, log_level: str, **options: Any) -> None:
    """Close the whole loop on this machine: telemetry, worker, decisions, a live actuator, and a fleet that obeys.

    Needs no Kafka, no GPU and no cloud. This host's own metrics are in it, beside a simulated fleet; with --recording
    that fleet serves the demand of a recording. The same time runs beside it without Flyball, and a table says what
    Flyball was worth. The exit status is 0 only when effects were observed, every decision was answered, and
    no message was refused unread. With --speed 60 a day passes in 24 minutes.

    \b
    Examples:
      flyball demo
      flyball demo --headless --for 90 --seed 7
      flyball demo --speed 60 --headless --for 240
      flyball demo --recording gentd26.parquet --headless --for 240
    """
    need("worker", "agent", *(() if options["headless"] else ("dashboard",)), what="the demo")
    from flyball_cli.demo.run import run_demo
    from flyball_cli.demo.services import Options

    given = Options(**options)
    if given.headless and given.for_s is None:
        raise click.UsageError("--headless needs --for SECONDS")
    if given.recording is not None and given.fleet is not None:
        raise click.UsageError("--recording plays no fleet; leave out --fleet")
    if given.bootstrap is not None and given.broker_port is not None:
        raise click.UsageError("--bootstrap uses a Kafka of yours; leave out --broker-port")
    config = configured(config_path, given.bootstrap, log_level)
    if not given.headless:
        _refuse_taken(given.port)
    with until_signal() as stop:
        status = run_demo(given, config, stop, Console())
    sys.exit(status)


def _refuse_taken(port: int) -> None:
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind(("127.0.0.1", port))
        except OSError as error:
            raise click.BadParameter(
                f"{port}: {error.strerror}; name another port, or 0 for a free one", param_hint="--port"
            ) from error
