"""``flyball resume``."""

import time

import click

from flyball_cli.options import with_config
from flyball_contracts.config import Config


@click.command("resume")
@click.option("--cell", default="*", show_default=True, help="The pattern that was stopped.")
@click.option("--by", help="Who orders it; user and host by default.")
@with_config
def command(cell: str, by: str | None, config: Config) -> None:
    """End a `flyball stop`.

    \b
    Example:
      flyball resume --cell 'eu-*'
    """
    from flyball_cli.controls import order, standing, who
    from flyball_contracts.kafka.preflight import preflight
    from flyball_contracts.records import Stop

    preflight(config, "operator")
    stops = [one for one in standing(config.kafka) if isinstance(one, Stop)]
    if cell not in {stop.cell for stop in stops}:
        known = ", ".join(repr(stop.cell) for stop in stops)
        raise click.UsageError(f"cells {cell!r} are not stopped; " + (f"stopped are {known}" if stops else "none is"))
    order(config.kafka, Stop(cell=cell, time_ns=time.time_ns(), by=by or who(), removed=True))
    left = [stop.cell for stop in stops if stop.cell != cell]
    also = f"; still stopped are {', '.join(map(repr, left))}" if left else ""
    click.echo(f"cells {cell!r} go on, unless a kill-switch file is there{also}")
