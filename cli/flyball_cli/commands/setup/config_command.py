"""``flyball config``."""

from pathlib import Path

import click

PACKAGE = Path(__file__).resolve().parents[2]
CHECKOUT = PACKAGE.parents[1] / "infra"
FOLDERS = (PACKAGE / "examples", CHECKOUT / "examples", CHECKOUT / "slurm", CHECKOUT / "systemd")
"""Folders of the examples: in an installed package, and in a checkout."""


@click.group("config")
def command() -> None:
    """Print example configurations.

    \b
    Example:
      flyball config example > flyball.yaml
    """


@command.command("example")
@click.argument("name", required=False, default="flyball.yaml")
def example(name: str) -> None:
    """Print the example NAME: by default flyball.yaml, which shows every key with its default.

    Others are the simulated fleet, the unit of systemd and the prolog of Slurm; a wrong NAME lists them.

    \b
    Examples:
      flyball config example > flyball.yaml
      flyball config example fleet.yaml > fleet.yaml
      flyball config example task-prolog > /etc/slurm/task-prolog
    """
    found = {path.name: path for folder in FOLDERS if folder.is_dir() for path in sorted(folder.iterdir())}
    if name not in found:
        raise click.UsageError(f"there is no example {name!r}; known: {', '.join(found)}")
    click.echo(found[name].read_text(encoding="utf-8"), nl=False)
