"""Output files of a command: checked before the work, moved into place after it; --force replaces existing ones."""

import os
import tempfile
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def force_option(function: F) -> F:
    """``--force``."""
    return click.option("--force", is_flag=True, help="Replace files that exist.")(function)


def output(path: Path, *, force: bool, beside: Iterable[Path | None] = ()) -> Path:
    """Return the target of ``path``, behind links; ``click.UsageError`` if it may not be written.

    ``beside`` are the command's other files, which it reads or writes: even ``force`` replaces none of them.
    """
    try:
        real = path.resolve()
        exists = real.exists()
    except (OSError, RuntimeError) as error:
        raise click.UsageError(f"{path}: cannot be written: {error}") from error
    if exists and not real.is_file():
        raise click.UsageError(f"{path}: is a folder, a device or a pipe; name a file")
    if any(other is not None and other.resolve() == real for other in beside):
        raise click.UsageError(f"{path}: is another file of this command; name a new one")
    if not real.parent.is_dir():
        raise click.UsageError(f"{path}: there is no folder {real.parent}; make it first")
    if not os.access(real.parent, os.W_OK | os.X_OK):
        raise click.UsageError(f"{path}: the folder {real.parent} may not be written to")
    if exists and not force:
        raise click.UsageError(f"{path}: exists already; --force replaces it")
    try:  # a file system that takes no new files, such as /proc, fails only when one is made
        with tempfile.TemporaryFile(dir=real.parent):
            pass
    except OSError as error:
        raise click.UsageError(f"{path}: no file can be made in {real.parent}: {error.strerror}") from error
    return real


@contextmanager
def written(path: Path) -> Generator[BinaryIO]:
    """Open a temporary file beside ``path``; it replaces ``path`` if the block succeeds, and is removed otherwise."""
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    beside = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
        beside.chmod(_mode(path))
        beside.replace(path)
    except OSError as error:
        raise click.ClickException(f"{path}: cannot be written: {error.strerror}") from error
    finally:
        beside.unlink(missing_ok=True)


def _mode(path: Path) -> int:
    """Permissions of the replaced file, or those of a new one."""
    if path.exists():
        return path.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
