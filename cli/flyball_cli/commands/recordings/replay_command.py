"""``flyball replay``."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.table import Table

from flyball_cli.extras import need
from flyball_cli.options import Finite, common, configured, progress_bar, until_signal
from flyball_cli.outputs import force_option, output, written
from flyball_contracts.config import Config
from flyball_contracts.errors import Stopped
from flyball_contracts.records import DECISION_TYPES

if TYPE_CHECKING:
    from flyball_streams.recording.offline import Replayed


@click.command("replay")
@click.argument("recording", type=click.Path(path_type=Path))
@common
@click.option("--out", type=click.Path(path_type=Path), help="Write the decisions here, one JSON document a line.")
@force_option
@click.option("--to-broker", is_flag=True, help="Produce the recording's source topics to the broker instead.")
@click.option("--rebase", is_flag=True, help="With --to-broker: shift all times so that the recording ends now.")
@click.option(
    "--speed",
    type=Finite(0, min_open=True),
    help="With --to-broker: event seconds per second; unpaced by default.",
)
def command(
    recording: Path,
    config_path: Path | None,
    bootstrap: str | None,
    log_level: str,
    out: Path | None,
    force: bool,
    to_broker: bool,
    rebase: bool,
    speed: float | None,
) -> None:
    """Replay RECORDING through the engine, without a broker, and show what would have been decided.

    The engine is the worker's own, driven by the times in the recording: the same recording and configuration give
    the same decisions, to the byte.

    \b
    Examples:
      flyball replay monday.parquet --out decisions.jsonl
      flyball replay monday.parquet --config candidate-policy.yaml
      flyball replay monday.parquet --to-broker --bootstrap kafka-1:9092
    """
    if to_broker and out is not None:
        raise click.UsageError("--out is for a replay offline; leave out --to-broker")
    if not to_broker and (rebase or speed is not None):
        raise click.UsageError("--rebase and --speed are for a replay with --to-broker")
    need("worker")
    config = configured(config_path, bootstrap, log_level)
    out = None if out is None else output(out, force=force, beside=[recording, config_path])
    with until_signal() as stop, progress_bar("replaying") as progress:
        if to_broker:
            from flyball_streams.recording import Recording, replay

            known = Recording.open(recording)
            start_ns = time.time_ns() - (known.to_ns - known.from_ns) if rebase else None
            report = replay(recording, config.kafka, stop=stop, speed=speed, progress=progress, rebase_to_ns=start_ns)
            click.echo(f"{report.messages} messages sent")
            return
        _offline(recording, config, out, stop, progress)


def _offline(
    recording: Path,
    config: Config,
    out: Path | None,
    stop: threading.Event,
    progress: Callable[[int, int], None],
) -> None:
    from flyball_streams.recording import Recording

    Recording.open(recording)  # refuses other files before a second of imports

    from flyball_streams.recording.history import histories
    from flyball_streams.recording.offline import decide

    result = decide(recording, config.worker, histories=histories(config.worker), stop=stop, progress=progress)
    if result is None:
        raise Stopped("the recording was not replayed to its end")
    if out is not None:
        with written(out) as file:
            file.writelines(line + b"\n" for line in result.decisions)
    Console().print(tabulated(result))


def tabulated(result: "Replayed") -> Table:
    """What was decided, what it rests on, and what was left out and why."""
    table = Table("what", "count", box=None, header_style="bold")
    for kind in DECISION_TYPES:
        table.add_row(kind, str(result.kinds[kind]))
    for label, field in (("frames used", "used"), ("duplicates", "duplicates"), ("late", "late"), ("ticks", "ticks")):
        nodes = [stats for lane, stats in result.stats.items() if lane.startswith("node/")]
        table.add_row(label, str(sum(getattr(stats, field) for stats in nodes)))
    if nameless := sum(stats.without_spec for stats in result.stats.values()):
        table.add_row("[yellow]workloads without a specification[/]: nothing is decided on them", str(nameless))
    for reason, count in result.refusals.most_common(5):
        table.add_row(f"[yellow]refused[/]: {reason}", str(count))
    return table
