"""``flyball nodes``."""

import sys
from collections.abc import Sequence

import click

from flyball_cli.options import with_config
from flyball_contracts.config import Config


@click.group("nodes")
def command() -> None:
    """Remove nodes that are gone for good.

    \b
    Example:
      flyball nodes remove gpu-17 --cell eu-1
    """


@command.command("remove")
@click.argument("nodes", nargs=-1, required=True, metavar="NODE...")
@click.option("--cell", help="Refuse nodes of other cells.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@with_config
def remove(
    nodes: Sequence[str],
    cell: str | None,
    yes: bool,
    config: Config,
) -> None:
    """End the inventory of each NODE that does not come back, and with it the incident that the node is silent.

    A node that still sends frames is refused. In Kubernetes the controller does this. An agent that starts on the node
    again publishes a new inventory.

    \b
    Example:
      flyball nodes remove gpu-17 --cell eu-1
    """
    from flyball_cli.nodes import removable, remove as remove_nodes
    from flyball_contracts.kafka.preflight import preflight

    preflight(config, "remover")
    found = removable(config.kafka, nodes, cell)
    for one in found:
        click.echo(f"{one.node} of cell {one.cell}: {len(one.devices)} devices")
    if not yes:
        if not sys.stdin.isatty():
            raise click.UsageError("no terminal to ask on: pass --yes to remove them")
        click.confirm(f"Remove {len(found)} from {config.kafka.bootstrap}?", abort=True)
        found = removable(config.kafka, nodes, cell)  # a node may have come back during the prompt
    remove_nodes(config.kafka, [one.node for one in found])
    click.echo(f"{len(found)} removed from {config.kafka.bootstrap} and acknowledged")
