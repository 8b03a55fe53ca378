"""One process at a time for a file that must not be written by two."""

import fcntl
from pathlib import Path
from typing import IO

from flyball_contracts.errors import ConfigError


def locked(path: Path, key: str) -> IO[bytes]:
    """Hold the file beside ``path`` that says who uses it, until it is closed; makes the folder.

    ``key`` names the setting in errors. Raises :class:`ConfigError` where another process holds it, and ``OSError``.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = path.with_name(path.name + ".lock").open("ab")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        lock.close()
        raise ConfigError(f"{key}: {path} is in use by another actuator; stop it or name another") from error
    except OSError:
        lock.close()
        raise
    return lock
