"""``flyball waste``."""

import sys
from pathlib import Path

import click
import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from flyball_cli.extras import need
from flyball_cli.options import DAY_S, Finite, progress_bar, until_signal, with_config
from flyball_contracts.config import Config
from flyball_contracts.errors import Stopped


@click.command("waste")
@click.argument("recording", type=click.Path(path_type=Path), required=False)
@click.option("--since", type=Finite(0), default=1.0, show_default=True, help="Days to look back on the broker.")
@click.option("--most", type=click.IntRange(1), default=40, show_default=True, help="Rows to list.")
@click.option("--json", "as_json", is_flag=True, help="Print all rows as JSON instead of a table.")
@with_config
def command(
    recording: Path | None,
    since: float,
    most: int,
    as_json: bool,
    config: Config,
) -> None:
    """List the GPU time that is paid for and not used: idle, open notebooks, oversized, fragments, starved of input.

    With RECORDING, the engine looks for it in there; without one, what the workers have found is read from the broker.
    Each GPU counts in one way at a time, so that the sums count nothing twice.

    \b
    Examples:
      flyball waste --bootstrap kafka-1:9092
      flyball waste monday.parquet --json
    """
    if recording is not None:
        need("worker")
    from flyball_cli.waste.sums import added_up, hours, of_recording
    from flyball_contracts.records import Waste

    if recording is not None:
        with until_signal() as stop, progress_bar("looking") as progress:
            found = of_recording(recording, config.worker, stop, progress)
            if found is None:
                raise Stopped("the recording was not read to its end")
    else:
        from flyball_cli.explain.records import read_insights

        found = read_insights(config.kafka, Waste, since * DAY_S)
    losses = added_up(found)
    if as_json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(losses), indent=1).decode() + "\n")
        return
    table = Table("USD", "GPU hours", "GPUs", "how", "what would take it", box=None, header_style="bold")
    for loss in losses[:most]:
        usd = "" if loss.usd is None else f"{loss.usd:,.2f}"
        table.add_row(
            usd, f"{loss.gpu_hours:,.1f}", str(loss.devices), loss.category, escape(f"{loss.action}: {loss.proposal}")
        )
    console = Console()
    console.print(table)
    if len(losses) > most:
        console.print(f"and {len(losses) - most} more; --most shows them")
    known = sum(loss.usd for loss in losses if loss.usd is not None)
    total = sum(loss.gpu_hours for loss in losses)
    console.print(f"{total:,.1f} GPU hours and {known:,.2f} USD in {hours(losses):,.1f} hours")
