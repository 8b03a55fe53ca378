"""A lock for a file that only one process may write."""

import fcntl
from pathlib import Path
from typing import IO

from flyball_contracts.errors import ConfigError


def locked(path: Path, key: str) -> IO[bytes]:
    """Lock ``path`` through a lock file beside it, until that is closed; creates the folder.

    ``key`` names the setting in errors. Raises :class:`ConfigError` if another process holds the lock, and ``OSError``.
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
