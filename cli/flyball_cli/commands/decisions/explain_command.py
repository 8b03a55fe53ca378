"""``flyball explain``."""

import sys
from pathlib import Path

import click
import msgspec
from rich.console import Console

from flyball_cli.options import DAY_S, Finite, with_config
from flyball_contracts.config import Config


@click.command("explain")
@click.argument("decision")
@click.option("--since", type=Finite(0), default=7.0, show_default=True, help="Days to look back for it.")
@click.option("--json", "as_json", is_flag=True, help="Print the records instead of a screen.")
@with_config
def command(decision: str, since: float, as_json: bool, config: Config) -> None:
    """Explain one DECISION: why it was made, on which numbers, what was done, and the observed effect.

    DECISION is its id, the beginning of it, or `latest`. Where the file that
    `actuator.audit` names is on this machine, what the guard said and the calls
    of the platform are shown as well.

    \b
    Example:
      flyball explain 5f3c9a --bootstrap kafka-1:9092
    """
    from flyball_actuators.audit import AnyEntry, Broken, entries_about
    from flyball_cli.explain.records import read_records
    from flyball_cli.explain.screen import screen

    found = read_records(config.kafka, decision, since * DAY_S)
    audit = Path(config.actuator.audit)
    trail: list[AnyEntry] = []
    try:
        trail = entries_about(audit, found.decision.id) if audit.is_file() else []
    except Broken as error:  # the records from the topics are still shown
        click.echo(f"the audit trail is left out: {error}", err=True)
    if as_json:
        document = {"decision": found.decision, "outcomes": found.outcomes, "records": found.records, "audit": trail}
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(document), indent=1).decode() + "\n")
    else:
        Console().print(screen(found, trail))
