"""``flyball worker``."""

from pathlib import Path

import click
import msgspec

from flyball_cli.extras import need
from flyball_cli.options import health_option, with_config
from flyball_contracts.config import Config


@click.command("worker")
@with_config
@health_option
@click.option(
    "--history",
    type=click.Path(path_type=Path),
    metavar="RECORDING",
    help="Start forecasts from this recording; overrides worker.forecast.history.",
)
@click.option("--embedded", is_flag=True, help="The broker is the embedded one of `flyball demo`.")
def command(
    config: Config,
    health_file: Path | None,
    history: Path | None,
    embedded: bool,
) -> None:
    """Run one worker process: the node, workload and cell lanes of the partitions it is given.

    Start as many as there are cores; they share the partitions.

    \b
    Example:
      flyball worker --config /etc/flyball/flyball.yaml
    """
    need("worker")
    from flyball_contracts.kafka.preflight import preflight
    from flyball_streams.worker.run import run_worker

    if history is not None:
        forecast = msgspec.structs.replace(config.worker.forecast, history=str(history))
        config = msgspec.structs.replace(config, worker=msgspec.structs.replace(config.worker, forecast=forecast))
    preflight(config, "worker")
    run_worker(config, embedded=embedded, health_file=health_file)
