"""``flyball audit``."""

import sys
from datetime import UTC, datetime
from pathlib import Path

import click
import msgspec
from rich.console import Console

from flyball_cli.options import DAY_S, Finite, with_config
from flyball_contracts.config import Config


@click.group("audit")
def command() -> None:
    """Verify the audit trail that `actuator.audit` names, or show what it has of one decision.

    \b
    Examples:
      flyball audit verify /var/lib/flyball/audit --bootstrap kafka-1:9092
      flyball audit show 5f3c9a --file /var/lib/flyball/audit
    """


@command.command("verify")
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="PATH...")
@click.option("--since", type=Finite(0), default=30.0, show_default=True, help="Days of outcomes to read for anchors.")
@click.option("--anchor", "given", multiple=True, metavar="TRAIL/LINE/CHECKSUM", help="An anchor that you kept.")
@click.option("--part", is_flag=True, help="Other trails that outcomes name are elsewhere: list them, and do not fail.")
@click.option("--offline", is_flag=True, help="Read no topic: a trail that was cut off or replaced is not noticed.")
@with_config
def verify(
    paths: tuple[Path, ...],
    since: float,
    given: tuple[str, ...],
    part: bool,
    offline: bool,
    config: Config,
) -> None:
    """Say whether the trails in PATH... are what the actuators wrote, and name the first line that is not.

    Each line is chained to the one before. Last outcomes carry the head of the chain, so a file that was rewritten, or
    whose end was cut off, does not fit the topic of outcomes. A trail that outcomes name and that is in none of the
    files is missing, or was replaced by another: give the files of all actuators, or --part. The exit status is 1 where
    something is wrong.

    \b
    Examples:
      flyball audit verify /var/lib/flyball/audit --bootstrap kafka-1:9092
      flyball audit verify host-a/audit host-b/audit --bootstrap kafka-1:9092
    """
    from flyball_actuators.audit import Anchor, Broken, absent, anchor_of, verified
    from flyball_cli.explain.records import read_anchors

    for path in paths:
        if not path.is_file():
            why = "is no file" if path.exists() else "there is no such file"
            raise click.BadParameter(f"{path}: {why}; actuator.audit names it", param_hint="PATH")
    anchors: list[Anchor] = []
    for text in given:
        anchor = anchor_of(text, "the anchor given")
        if anchor is None:
            raise click.BadParameter(f"{text!r} is no TRAIL/LINE/CHECKSUM as outcomes carry it", param_hint="--anchor")
        anchors.append(anchor)
    for outcome in () if offline else read_anchors(config.kafka, since * DAY_S):
        source = f"the outcome of decision {outcome.decision}"
        anchor = anchor_of(outcome.audit, source, outcome.actuator, outcome.time_ns)
        anchors += [anchor] if anchor is not None else []
    trails: set[str] = set()
    wrong = False
    for path in paths:
        try:
            checked = verified(path, anchors)
        except Broken as error:
            click.echo(f"Error: {error}", err=True)
            wrong = True
            continue
        trails |= checked.trails
        for file in checked.files:
            click.echo(f"{file}: whole")
        click.echo(f"{checked.lines} entries about {checked.decisions} decisions; head {checked.head}")
        if checked.anchored:
            click.echo(f"anchored up to line {checked.anchored} of {path}")
        else:
            click.echo("no anchor names it: lines that were cut off the end would not be noticed")
        if checked.unfinished:
            click.echo(
                f"a last line of {checked.unfinished} bytes is unfinished: a crash cut it, or it is being written"
            )
        if checked.missing:
            click.echo(f"it follows {checked.missing}, whose file is not beside it")
    for one in () if wrong else absent(trails, anchors):
        until = datetime.fromtimestamp(one.until_ns / 1e9, UTC).isoformat(timespec="seconds")
        hosts = ", ".join(dict.fromkeys(actuator.partition("/")[0] for actuator in one.actuators)) or "an anchor given"
        click.echo(
            f"{'' if part else 'Error: '}trail {one.trail} of {hosts} is in none of the files: {one.outcomes} outcomes "
            f"until {until} name it, when it had {one.lines} lines or more"
            + ("" if part else "; give its file too, or it was removed or replaced"),
            err=not part,
        )
        wrong = wrong or not part
    if wrong:
        sys.exit(1)


@command.command("show")
@click.argument("decision")
@click.option("--file", "path", type=click.Path(path_type=Path), help="The trail; actuator.audit if left out.")
@click.option("--json", "as_json", is_flag=True, help="Print the entries instead of a table.")
@with_config
def show(
    decision: str,
    path: Path | None,
    as_json: bool,
    config: Config,
) -> None:
    """Show what the trail has of one DECISION: what was received, checked, called and reported.

    DECISION is its id, or the beginning of it.

    \b
    Example:
      flyball audit show 5f3c9a --file /var/lib/flyball/audit
    """
    from flyball_actuators.audit import entries_about
    from flyball_cli.explain.trail import table
    from flyball_contracts.errors import ConfigError, FlyballError

    named = path or Path(config.actuator.audit)
    if named == Path():
        raise ConfigError("actuator.audit: no trail is named; name one there, or pass --file")
    entries = entries_about(named, decision)
    ids = sorted({entry.decision for entry in entries})
    if len(ids) != 1:
        problem = f"{len(ids)} decisions begin with it: {', '.join(ids[:5])}" if ids else "the trail has none"
        raise FlyballError(f"decision {decision!r}: {problem}; give its id, or another --file")
    if as_json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(entries), indent=1).decode() + "\n")
    else:
        Console().print(table(entries))
