"""``flyball workloads``."""

import sys
import time
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flyball_cli.options import with_config
from flyball_contracts.config import Config
from flyball_contracts.errors import ConfigError

if TYPE_CHECKING:
    from flyball_cli.workloads.changes import Change
    from flyball_contracts.records import WorkloadSpec


@click.group("workloads")
def command() -> None:
    """Declare workloads to Flyball: their objectives and limits.

    \b
    Examples:
      flyball workloads example > workloads.yaml
      flyball workloads apply workloads.yaml --bootstrap kafka-1:9092
      flyball workloads list
      flyball workloads show chat
      flyball workloads remove chat
    """


def _writing(function: Callable[..., Any]) -> Callable[..., Any]:
    """``--yes`` and ``--dry-run``."""
    function = click.option("--dry-run", is_flag=True, help="Show what would be sent, and send nothing.")(function)
    return click.option("--yes", is_flag=True, help="Do not ask.")(function)


@command.command("apply")
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
@_writing
@with_config
def apply(file: Path, config: Config, yes: bool, dry_run: bool) -> None:
    """Declare the workloads of FILE (- for standard input); those that are not in it stay as they are.

    The file is checked, what it changes is shown, and after a yes it is sent. A field that is left out has its
    default, whatever it was before.

    \b
    Example:
      flyball workloads apply workloads.yaml --dry-run
    """
    from flyball_cli.workloads.changes import changes_to, warnings_of
    from flyball_cli.workloads.reading import read_specs
    from flyball_cli.workloads.topic import read_topic
    from flyball_contracts.kafka.preflight import preflight

    specs = read_specs(_text(file), str(file), time.time_ns())
    preflight(config, "owner")
    changes = changes_to(specs, read_topic(config.kafka))
    if len(changes) < len(specs):
        click.echo(f"{_counted(len(specs) - len(changes))} already as {file} says")
    for warning in (text for change in changes for text in warnings_of(change.after)):
        click.echo(f"warning: {warning}", err=True)
    _send(config, changes, yes, dry_run)


@command.command("list")
@click.argument("patterns", nargs=-1, metavar="[PATTERN]...")
@click.option("--cell", help="Only those of this cell.")
@click.option("--kind", help="Only those of this kind: inference, training, notebook or batch.")
@click.option("--tenant", help="Only those of this tenant.")
@with_config
def list_(patterns: Sequence[str], config: Config, **wanted: str | None) -> None:
    """List workloads, all or those whose names fit a PATTERN like 'chat-*'.

    \b
    Example:
      flyball workloads list 'chat-*' --cell eu-1
    """
    from flyball_cli.terminal import unwrapped_console
    from flyball_cli.workloads.listing import summary, tabulated
    from flyball_cli.workloads.topic import read_topic

    specs = [spec for spec in read_topic(config.kafka).values() if not spec.removed]
    found = [
        spec
        for spec in specs
        if (not patterns or any(fnmatchcase(spec.workload, pattern) for pattern in patterns))
        and all(value is None or getattr(spec, key) == value for key, value in wanted.items())
    ]
    if not found:
        click.echo("no workload" + (f" of {len(specs):,} fits" if specs else " is declared yet"))
        return
    unwrapped_console().print(tabulated(sorted(found, key=lambda spec: (spec.cell, spec.workload))))
    click.echo(summary(found))


@command.command("show")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@with_config
def show(names: Sequence[str], config: Config) -> None:
    """Print workloads as YAML that `flyball workloads apply` takes; a NAME may be a pattern like '*'.

    \b
    Example:
      flyball workloads show '*' > workloads.yaml
    """
    from flyball_cli.workloads.reading import write_specs
    from flyball_cli.workloads.topic import read_topic

    known = {name: spec for name, spec in read_topic(config.kafka).items() if not spec.removed}
    click.echo(write_specs([known[name] for name in _named(names, known)]), nl=False)


@command.command("remove")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@_writing
@with_config
def remove(names: Sequence[str], config: Config, yes: bool, dry_run: bool) -> None:
    """Take workloads back; a NAME may be a pattern like 'test-*'.

    Nothing is stopped: replicas run on, there are no more decisions about them, and pending decisions are refused.
    `apply` brings a workload back.

    \b
    Example:
      flyball workloads remove chat
    """
    from flyball_cli.workloads.changes import removals_of
    from flyball_cli.workloads.topic import read_topic

    known = {name: spec for name, spec in read_topic(config.kafka).items() if not spec.removed}
    changes = removals_of(_named(names, known), known, time.time_ns())
    click.echo("What runs goes on running; no more is decided on it, and decisions on their way are refused.")
    _send(config, changes, yes, dry_run)


@command.command("example")
def example() -> None:
    """Print a file to start from.

    \b
    Example:
      flyball workloads example > workloads.yaml
    """
    click.echo(files("flyball_cli.workloads").joinpath("example.yaml").read_text(encoding="utf-8"), nl=False)


def _send(config: Config, changes: "Sequence[Change]", yes: bool, dry_run: bool) -> None:
    """Show changes, ask, and send them."""
    from flyball_cli.workloads.changes import lines_of
    from flyball_cli.workloads.topic import write_topic

    if not changes:
        click.echo("nothing to send")
        return
    for line in (line for change in changes for line in lines_of(change)):
        colour = {"+": "green", "-": "red", "~": "yellow"}.get(line[0])
        click.secho(line, fg=colour)
    if dry_run:
        click.echo(f"{_counted(len(changes))} would be sent to {config.kafka.bootstrap}; nothing was")
        return
    if not yes:
        if not sys.stdin.isatty():
            raise click.UsageError("no terminal to ask on: pass --yes to send this, or --dry-run to only see it")
        click.confirm(f"Send {_counted(len(changes))} to {config.kafka.bootstrap}?", abort=True)
    write_topic(config.kafka, [change.after for change in changes])
    click.echo(f"{_counted(len(changes))} sent to {config.kafka.bootstrap} and acknowledged")


def _named(names: Sequence[str], known: "dict[str, WorkloadSpec]") -> list[str]:
    """Existing names that fit names or patterns, in the order given; an error with the nearest name if none fits."""
    import difflib

    found: dict[str, None] = {}
    for name in names:
        fits = [one for one in known if fnmatchcase(one, name)]
        if not fits:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]!r}?" if near else "see `flyball workloads list`"
            raise click.UsageError(f"there is no workload {name!r}; {hint}")
        found.update(dict.fromkeys(fits))
    return list(found)


def _text(file: Path) -> str:
    try:
        return sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError(f"{file}: cannot be read: {reason}") from error


def _counted(count: int) -> str:
    return f"{count:,} workload{'s' * (count != 1)}"
