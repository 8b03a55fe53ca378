"""``flyball approve``."""

import sys
import time

import click

from flyball_cli.options import DAY_S, Finite, with_config
from flyball_contracts.config import Config


@click.command("approve")
@click.argument("decision")
@click.option("--for", "for_s", type=Finite(1), default=1800.0, show_default=True, help="Seconds that it holds.")
@click.option("--since", type=Finite(0), default=7.0, show_default=True, help="Days to look back for the decision.")
@click.option("--reason", default="", help="Kept with the approval.")
@click.option("--by", help="Who approves it; user and host by default.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@with_config
def command(
    decision: str,
    for_s: float,
    since: float,
    reason: str,
    by: str | None,
    yes: bool,
    config: Config,
) -> None:
    """Agree to a DECISION that a policy with `approval` refused: its id, or the beginning of it.

    It is carried out when it is decided again, within some minutes. The approval covers the same of the same target,
    and any number of replicas between what there was and what was approved.

    \b
    Example:
      flyball approve 5f3c9a --for 3600 --reason "seen with the team"
    """
    from flyball_cli.controls import order, who
    from flyball_cli.explain.records import read_decision
    from flyball_contracts.kafka.preflight import preflight
    from flyball_contracts.records import Approval

    preflight(config, "operator")
    found = read_decision(config.kafka, decision, since * DAY_S)
    click.echo(f"{type(found).__name__} {found.target}: {found.reason}")
    if not yes:
        if not sys.stdin.isatty():
            raise click.UsageError("no terminal to ask on: pass --yes to approve it")
        click.confirm(f"Approve it for {for_s:g} s?", abort=True)
    now_ns = time.time_ns()
    until_ns = now_ns + round(for_s * 1e9)
    order(config.kafka, Approval(decision=found, time_ns=now_ns, until_ns=until_ns, by=by or who(), reason=reason))
    click.echo(f"approved for {for_s:g} s; it is carried out when it is decided again")
