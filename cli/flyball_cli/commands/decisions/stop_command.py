"""``flyball stop``."""

import time

import click

from flyball_cli.options import with_config
from flyball_contracts.config import Config


@click.command("stop")
@click.option("--cell", default="*", show_default=True, help="Glob pattern of the cells.")
@click.option("--reason", required=True, help="Each refusal and the page say it.")
@click.option("--by", help="Who orders it; user and host by default.")
@with_config
def command(cell: str, reason: str, by: str | None, config: Config) -> None:
    """Stop all actuators from starting anything until `flyball resume`; running operations are observed to their end.

    \b
    Example:
      flyball stop --cell 'eu-*' --reason "cooling fails in hall 2"
    """
    from flyball_cli.controls import order, who
    from flyball_contracts.kafka.preflight import preflight
    from flyball_contracts.records import Stop

    preflight(config, "operator")
    order(config.kafka, Stop(cell=cell, time_ns=time.time_ns(), by=by or who(), reason=reason))
    click.echo(f"cells {cell!r} are stopped; to go on: flyball resume --cell {cell!r}")
