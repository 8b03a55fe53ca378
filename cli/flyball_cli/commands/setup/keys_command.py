"""``flyball keys``."""

import base64
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flyball_cli.extras import need

if TYPE_CHECKING:
    from flyball_contracts.security.signing import Signer


@click.group("keys")
def command() -> None:
    """Make and show the keys with which workers sign decisions.

    \b
    Examples:
      flyball keys new /etc/flyball/worker.pem
      flyball keys show /etc/flyball/worker.pem
    """


@command.command("new")
@click.argument("file", type=click.Path(path_type=Path))
def new(file: Path) -> None:
    """Make a private key in FILE, which only you can read, and print how worker and actuator are configured with it.

    \b
    Example:
      flyball keys new /etc/flyball/worker.pem
    """
    need("actuate")
    from flyball_contracts.security.signing import new_key

    _print(file, new_key(file))


@command.command("show")
@click.argument("file", type=click.Path(path_type=Path))
def show(file: Path) -> None:
    """Print how worker and actuator are configured with the key in FILE; the private part is not shown.

    \b
    Example:
      flyball keys show /etc/flyball/worker.pem
    """
    need("actuate")
    from flyball_contracts.security.signing import Signer

    _print(file, Signer(file, "FILE"))


def _print(file: Path, signer: "Signer") -> None:
    public = base64.b64encode(signer.public).decode()
    click.echo(f"# key {signer.id}\nworker:\n  signing_key: {file.absolute()}\nactuator:\n  keys:")
    scope = 'cells: ["*"], workloads: ["*"], tenants: ["*"], types: [], platforms: []'
    click.echo(f'    - {{public: "{public}", {scope}}}')
