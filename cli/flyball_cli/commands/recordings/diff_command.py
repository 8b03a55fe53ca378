"""``flyball diff``."""

import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec
from rich.console import Console
from rich.table import Table

from flyball_cli.options import Finite
from flyball_cli.outputs import force_option, output, written
from flyball_contracts.ids import NS_PER_S

if TYPE_CHECKING:
    from flyball_streams.recording.difference import Pair, Replicas

STYLES = {"same": "dim", "moved": "cyan", "changed": "yellow", "gone": "red", "added": "green"}


@click.command("diff")
@click.argument("old", type=click.Path(path_type=Path))
@click.argument("new", type=click.Path(path_type=Path))
@click.option("--target", "targets", multiple=True, help="Only this target; may be given several times.")
@click.option(
    "--within", type=Finite(0), default=60.0, show_default=True, help="Seconds by which a decision may move in time."
)
@click.option("--most", type=click.IntRange(0), default=40, show_default=True, help="Differences to list.")
@click.option("--json", "json_out", type=click.Path(path_type=Path), help="Write all pairs here.")
@force_option
def command(
    old: Path, new: Path, targets: tuple[str, ...], within: float, most: int, json_out: Path | None, force: bool
) -> None:
    """Compare the decisions in OLD with those in NEW, by target and time.

    Both are what `flyball replay --out` wrote, or recordings with decisions in them. The exit status is 0 when the
    same is decided at the same times, else 1.

    \b
    Example:
      flyball replay monday.parquet --out today.jsonl
      flyball replay monday.parquet --config candidate.yaml --out candidate.jsonl
      flyball diff today.jsonl candidate.jsonl
    """
    from flyball_streams.recording.difference import compare, read_decisions, requested_replicas

    json_out = None if json_out is None else output(json_out, force=force, beside=[old, new])
    before, now = ([d for d in read_decisions(path) if not targets or d.target in targets] for path in (old, new))
    pairs, replicas = compare(before, now, within), requested_replicas(before, now)
    if json_out is not None:
        document = {"old": str(old), "new": str(new), "within_s": within, "pairs": pairs, "mean_replicas": replicas}
        with written(json_out) as file:
            file.write(msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n")
    console = Console()
    console.print(_by_target(pairs, replicas))
    different = [pair for pair in pairs if pair.verdict != "same"]
    if different:
        console.print(_listed(different[:most]))
    if len(different) > most:
        console.print(f"{len(different) - most} more; --most shows them")
    sys.exit(1 if different else 0)


def _by_target(pairs: "list[Pair]", replicas: "dict[str, Replicas]") -> Table:
    table = Table(box=None, header_style="bold")
    table.add_column("target")
    for heading in (*STYLES, "replicas old", "new"):
        table.add_column(heading, justify="right")
    counts: dict[str, Counter[str]] = {}
    for pair in pairs:
        counts.setdefault(pair.either.target, Counter())[pair.verdict] += 1
    for target, count in sorted(counts.items()):
        entries = [f"[{style}]{count[verdict]}[/]" if count[verdict] else "" for verdict, style in STYLES.items()]
        means = replicas.get(target)
        table.add_row(target, *entries, *(("", "") if means is None else (f"{means.old:.2f}", f"{means.new:.2f}")))
    total = sum(counts.values(), Counter[str]())
    table.add_row("[bold]all[/]", *(str(total[verdict]) for verdict in STYLES), "", "")
    return table


def _listed(pairs: "list[Pair]") -> Table:
    times = [datetime.fromtimestamp(pair.either.time_ns // NS_PER_S, UTC) for pair in pairs]
    days = {time.date() for time in times}
    table = Table(box=None, header_style="bold")
    table.add_column(f"UTC {days.pop()}" if len(days) == 1 else "UTC", no_wrap=True)
    shown = "%H:%M:%S" if not days else "%Y-%m-%d %H:%M:%S"
    table.add_column("")
    table.add_column("target", no_wrap=True)
    for heading in ("decision", "old", "new"):
        table.add_column(heading, overflow="fold")
    for time, pair in zip(times, pairs, strict=True):
        shift = ""
        if pair.old is not None and pair.new is not None and pair.old.time_ns != pair.new.time_ns:
            shift = f", {(pair.new.time_ns - pair.old.time_ns) / NS_PER_S:+g} s"
        table.add_row(
            time.strftime(shown),
            f"[{STYLES[pair.verdict]}]{pair.verdict}[/]",
            pair.either.target,
            type(pair.either).__name__,
            pair.old.change() if pair.old is not None else "",
            pair.new.change() + shift if pair.new is not None else "",
        )
    return table
