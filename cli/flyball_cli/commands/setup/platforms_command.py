"""``flyball platforms``."""

import sys
from collections.abc import Sequence

import click
import msgspec
from rich.console import Console
from rich.table import Table

from flyball_cli.options import DAY_S, Finite, with_config
from flyball_contracts.config import Config

NEWLINE = "\n"


@click.command("platforms")
@click.option("--observed", is_flag=True, help="Add what each was seen to do, by the outcomes on the broker.")
@click.option("--since", type=Finite(0), default=30.0, show_default=True, help="Days to look back.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@with_config
def command(observed: bool, since: float, as_json: bool, config: Config) -> None:
    """List what each driver promises: what it can do, and how.

    With --observed each promise stands beside what was seen: decisions that were done of those that were tried, dry
    runs, stops after which the named replicas were the ones that had stopped, failures that left as many replicas as
    there were, starts and stops that were all or nothing, effects that the platform showed as expected, and the median
    time to them. A dry run is judged by the platform itself or by the
    driver; a checkpoint is confirmed by the replica, made by the platform, or only requested; rollback takes back what
    failed, up to a point of no return; scrub clears a GPU's memory before another tenant gets it;
    node starts a replica that moves on the node that the decision names, or not at all.

    On a terminal that is wide enough for its words it is a table; in a pipe or a file, each driver is one line.

    \b
    Examples:
      flyball platforms
      flyball platforms --observed --bootstrap kafka-1:9092
    """
    from flyball_actuators.platforms.table import DRIVERS
    from flyball_cli.platforms.observed import rows
    from flyball_cli.platforms.shown import HEADER, entries

    seen = {}
    if observed:
        from flyball_cli.explain.records import read_sent

        seen = rows(*read_sent(config.kafka, since * DAY_S))
    if as_json:
        made = [
            {
                "driver": name,
                "capabilities": can._asdict() | {"promises": can.promises._asdict()},
                "seen": seen.get(name),
            }
            for name, can in DRIVERS.items()
        ]
        text = msgspec.json.encode(made, enc_hook=sorted, order="deterministic")
        sys.stdout.write(msgspec.json.format(text, indent=1).decode() + "\n")
        return
    shown = [entries(name, can, seen.get(name), observed=observed) for name, can in DRIVERS.items()]
    console = Console()
    if not console.is_terminal:  # a program that reads a pipe expects whole lines
        for name, *values in shown:
            click.echo(f"{name}: {facts(HEADER[1:], values)}")
        return
    table = Table(*HEADER, box=None, header_style="bold", pad_edge=False)
    for column in table.columns:
        column.overflow = "fold"
    table.columns[0].no_wrap = True
    for row in shown:
        table.add_row(*row)
    if console.measure(table, options=console.options.update(max_width=1000)).minimum <= console.width:
        console.print(table)
        return
    for name, *values in shown:  # a column would be narrower than its words
        console.print(f"[bold]{name}[/]", highlight=False)
        console.print(facts(HEADER[1:], values), highlight=False)


def facts(headings: Sequence[str], values: Sequence[str]) -> str:
    """Cells of one driver after its name, each with its heading."""
    return "; ".join(f"{head}: {text.replace(NEWLINE, ', ')}" for head, text in zip(headings, values, strict=True))
