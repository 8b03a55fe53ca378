"""``flyball policy``."""

from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from flyball_cli.options import common, configured, progress_bar
from flyball_cli.outputs import force_option, output, written
from flyball_contracts.records import DECISION_TYPES

if TYPE_CHECKING:
    from flyball_cli.policy.trial import JudgedDecision


@click.group("policy")
def command() -> None:
    """Try the guard's policies before they guard anything.

    \b
    Examples:
      flyball policy test monday.parquet --config candidate.yaml
    """


@command.command("test")
@click.argument("recording", type=click.Path(path_type=Path))
@click.option("--most", type=click.IntRange(0), default=20, show_default=True, help="Decisions to list.")
@click.option("--json", "json_out", type=click.Path(path_type=Path), help="Write all verdicts here.")
@force_option
@common
def test(
    recording: Path,
    most: int,
    json_out: Path | None,
    force: bool,
    config_path: Path | None,
    bootstrap: str | None,
    log_level: str,
) -> None:
    """Play the `actuator` section of --config over the decisions in RECORDING, and show what it would have stopped.

    Limits, windows and quotas are judged in the time of the recording. Nothing is sent anywhere.

    \b
    Example:
      flyball policy test monday.parquet --config candidate.yaml --json verdicts.json
    """
    from flyball_cli.policy.trial import judge_recorded

    json_out = None if json_out is None else output(json_out, force=force, beside=[recording, config_path])
    config = configured(config_path, bootstrap, log_level)
    console = Console()
    with progress_bar("messages") as update:
        found = judge_recorded(recording, config.actuator, update)
    if json_out is not None:
        with written(json_out) as file:
            file.write(msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")
    console.print(_by_rule(found))
    stopped = [one for one in found if one.verdict != "accepted"]
    if stopped and most:
        console.print(_listed(stopped[:most]))
    if len(stopped) > most:
        console.print(f"[dim]and {len(stopped) - most} more; --most lists them, --json has them all[/]")
    unused = [policy.name for policy in config.actuator.policies if policy.name not in {one.policy for one in found}]
    if unused:
        console.print(f"[yellow]stopped nothing:[/] {escape(', '.join(unused))}")


def _by_rule(found: "list[JudgedDecision]") -> Table:
    """Decisions by the guard's result, those that policies refused first."""
    groups: dict[tuple[bool, str], list[JudgedDecision]] = defaultdict(list)
    for one in found:
        rule = f"policy {one.policy}" if one.policy else one.code or "accepted"
        groups[not one.policy, rule].append(one)
    table = Table("rule", "decisions", *DECISION_TYPES, "targets", box=None, header_style="bold")
    for column in table.columns[1:]:
        column.justify = "right"
    for (_, rule), of_rule in sorted(groups.items(), key=lambda group: (group[0][0], -len(group[1]))):
        counts = [sum(one.type == kind for one in of_rule) for kind in DECISION_TYPES]
        colour = "green" if rule == "accepted" else "red"
        targets = str(len({one.target for one in of_rule}))
        table.add_row(f"[{colour}]{escape(rule)}[/]", str(len(of_rule)), *map(str, counts), targets)
    return table


def _listed(stopped: "list[JudgedDecision]") -> Table:
    table = Table("when", "decision", "target", "why not", box=None, header_style="bold")
    for one in stopped:
        when = f"{datetime.fromtimestamp(one.time_ns / 1e9, UTC):%m-%d %H:%M:%S}"
        table.add_row(when, f"{one.type} {one.decision[:8]}", escape(one.target), escape(one.detail))
    return table
