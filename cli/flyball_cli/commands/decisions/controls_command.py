"""``flyball controls``."""

import time
from datetime import UTC, datetime

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from flyball_cli.options import with_config
from flyball_contracts.config import Config


@click.command("controls")
@with_config
def command(config: Config) -> None:
    """List the stops and approvals that stand.

    \b
    Example:
      flyball controls --bootstrap kafka-1:9092
    """
    from flyball_cli.controls import standing
    from flyball_contracts.kafka.preflight import preflight
    from flyball_contracts.records import Stop

    preflight(config, "operator")
    now_ns = time.time_ns()
    table = Table("order", "about", "until", "by", "reason", box=None, header_style="bold", pad_edge=False)
    for one in standing(config.kafka):
        if isinstance(one, Stop):
            table.add_row("[red]stop[/]", f"cells {escape(one.cell)!r}", "resume", escape(one.by), escape(one.reason))
        elif one.until_ns > now_ns:
            about = f"{type(one.decision).__name__} {one.decision.target} ({one.decision.id[:12]})"
            until = f"{datetime.fromtimestamp(one.until_ns / 1e9, UTC):%Y-%m-%d %H:%M:%S} UTC"
            table.add_row("[green]approval[/]", escape(about), until, escape(one.by), escape(one.reason))
    if table.row_count:
        Console().print(table)
    else:
        click.echo("nothing is stopped, and no approval stands")
