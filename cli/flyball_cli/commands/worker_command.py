"""``flyball worker``."""

from pathlib import Path

import click

from flyball_cli.options import common, configured, health_option


@click.command("worker")
@common
@health_option
@click.option("--embedded", is_flag=True, help="The broker is the embedded one of `flyball demo`.")
def command(
    config_path: Path | None, bootstrap: str | None, log_level: str, health_file: Path | None, embedded: bool
) -> None:
    """Run one worker process: the node, workload and cell lanes of the partitions it is given.

    Start as many as there are cores; they share the partitions.

    \b
    Example:
      flyball worker --config /etc/flyball/flyball.yaml
    """
    from flyball_streams.worker.run import run_worker

    run_worker(configured(config_path, bootstrap, log_level), embedded=embedded, health_file=health_file)
