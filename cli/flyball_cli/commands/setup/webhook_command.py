"""``flyball webhook``."""

import sys

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from flyball_cli.options import Finite


@click.command("webhook")
@click.argument("url")
@click.option("--workload", required=True, help="A workload that the server runs.")
@click.option("--token-env", default="", help="Variable with the secret that the server is shown.")
@click.option("--timeout", "timeout_s", type=Finite(0.1), default=5.0, show_default=True, help="Seconds to an answer.")
def command(url: str, workload: str, token_env: str, timeout_s: float) -> None:
    """Try whether the server at URL keeps to the contract of driver webhook.

    The contract is in `infra/webhook.yaml`. The trial requests states and plans
    (dry run), and changes nothing. Exits 1 when the server breaks a rule.

    \b
    Example:
      flyball webhook https://edge.example:8443 --workload chat --token-env TOKEN
    """
    from flyball_actuators.platforms.webhook import WebhookPlatform, token_of
    from flyball_actuators.platforms.webhook_trial import trial
    from flyball_contracts.config import PlatformConfig

    token = token_of(PlatformConfig(driver="webhook", url=url, token_env=token_env), "webhook")
    stranger = WebhookPlatform(url, timeout_s) if token else None
    table, kept = Table.grid(padding=(0, 2, 0, 0)), True
    for one in trial(WebhookPlatform(url, timeout_s, token=token), workload, stranger):
        kept &= one.kept
        table.add_row("[green]ok[/]" if one.kept else "[red]no[/]", Text(one.rule), Text(one.found))
    Console().print(table)
    if not kept:
        sys.exit(1)
