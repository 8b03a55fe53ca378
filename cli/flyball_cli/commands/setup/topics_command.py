"""``flyball topics``."""

import click
from rich.console import Console
from rich.table import Column, Table

from flyball_cli.options import with_config
from flyball_contracts.config import Config
from flyball_contracts.topics import TOPICS


@click.command("topics")
@with_config
@click.option("--create", is_flag=True, help="Create the topics that are missing on the broker.")
@click.option(
    "--replicas", type=click.IntRange(1), default=1, show_default=True, help="Replication factor for --create."
)
@click.option("--acls", is_flag=True, help="Print the access lists of each role, as kafka-acls.sh commands.")
@click.option("--role", help="Only this role of --acls.")
@click.option("--principal", metavar="USER", help="Who plays --role; User:flyball-ROLE by default.")
def command(
    config: Config,
    create: bool,
    replicas: int,
    acls: bool,
    role: str | None,
    principal: str | None,
) -> None:
    """List the topics with their keys, records and retention, create them, or print who needs which right.

    \b
    Examples:
      flyball topics --acls --role agent
      flyball topics --create --bootstrap kafka-1:9092 --replicas 3
    """
    if acls and create:
        raise click.UsageError("--create and --acls do not go together")
    if acls:
        from flyball_cli.acls import render

        click.echo(render(config, role, principal), nl=False)
        return
    if role is not None or principal is not None:
        raise click.UsageError("--role and --principal go with --acls")
    if create:
        from flyball_cli.topics import create_topics

        made = create_topics(config.kafka, replicas)
        click.echo(f"created {len(made)} of {len(TOPICS)} topics" + "".join(f"\n  {name}" for name in made))
        return
    # A name that is cut is of no use: only the column "holds" wraps, and only between words.
    columns = [Column(name, no_wrap=name != "holds") for name in ("topic", "key", "holds", "kept", "parts", "format")]
    table = Table(*columns, box=None, header_style="bold", pad_edge=False, padding=(0, 1, 0, 0))
    for topic in TOPICS.values():
        partitions = config.kafka.partitions.get(topic.name, topic.partitions)
        form = "JSON" if topic.cloudevents else "msgpack"
        table.add_row(topic.name, topic.key, topic.holds, topic.retention, str(partitions), form)
    Console().print(table)
