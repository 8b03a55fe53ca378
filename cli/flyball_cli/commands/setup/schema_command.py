"""``flyball schema``."""

import json
from pathlib import Path

import click


@click.command("schema")
@click.argument("record", required=False)
@click.option(
    "--write",
    "folder",
    type=click.Path(path_type=Path),
    help="Write all generated files here: schemas, AsyncAPI, rights.",
)
def command(record: str | None, folder: Path | None) -> None:
    """Print the JSON Schema of RECORD (or the names of all), or write everything.

    \b
    Examples:
      flyball schema Scale
      flyball schema --write infra
    """
    from flyball_contracts.schema import json_schemas, write

    schemas = json_schemas()
    if folder is not None:
        from flyball_actuators import rights

        try:
            write(folder)
            rights.write(folder)
        except OSError as error:
            raise click.ClickException(f"{error.filename or folder}: cannot be written: {error.strerror}") from error
        click.echo(f"{len(schemas)} schemas, asyncapi.yaml, webhook.yaml, crds.yaml and all rights in {folder}")
    elif record is None:
        click.echo("\n".join(sorted(schemas)))
    elif record in schemas:
        click.echo(json.dumps(schemas[record], indent=2))
    else:
        raise click.UsageError(f"there is no record {record!r}; known: {', '.join(sorted(schemas))}")
