"""``flyball health``."""

import stat
import sys
import time
from pathlib import Path

import click

from flyball_cli.options import Finite


@click.command("health")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--max-age", type=Finite(0), default=30.0, show_default=True, help="Seconds since the last beat.")
def command(path: Path, max_age: float) -> None:
    """Exit 0 when the health file PATH of a service is at most --max-age seconds old, else 1.

    \b
    Example:
      flyball health /run/flyball/worker --max-age 30
    """
    try:
        status = path.stat()
    except OSError:
        click.echo(f"{path}: no health file; the service has not started", err=True)
        sys.exit(1)
    if not stat.S_ISREG(status.st_mode):
        click.echo(f"{path}: is not a health file but a folder or a device", err=True)
        sys.exit(1)
    age_s = time.time() - status.st_mtime
    if age_s < -max_age:  # the clock was set back, and the service has not touched the file since
        click.echo(f"{path}: last beat {-age_s:.1f} s in the future; is the clock right, and does the service run?")
        sys.exit(1)
    click.echo(f"{path}: last beat {max(age_s, 0.0):.1f} s ago")
    sys.exit(0 if age_s <= max_age else 1)
