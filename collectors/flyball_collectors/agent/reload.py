"""Configuration reload: detects changes, reads the file, and separates what applies now from what needs a restart."""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import msgspec

from flyball_contracts.config import Config
from flyball_contracts.errors import ConfigError

# Keys of the agent's identity, its queue and its spool, which last as long as the process.
AT_START = ("node", "root", "state_dir", "spool_bytes")
_Stamp = tuple[int, int, int]


class ConfigSource(Protocol):
    """Source of a new configuration."""

    def poll(self) -> Config | ConfigError | None:
        """A new configuration, the error why it cannot be used, or ``None`` if there is nothing new."""
        ...


class ConfigWatch:
    """Checks the configuration's file at each :meth:`poll`; ``load`` reads it and may raise :class:`ConfigError`.

    A change is used once the file is the same in two polls, as it may be incompletely written; :meth:`request` reads it
    at the next poll, changed or not.
    """

    def __init__(self, path: Path, load: Callable[[], Config]) -> None:
        self._path = path
        self._load = load
        self._requested = False
        self._read: _Stamp | None = self._stamp()
        self._seen = self._read

    def request(self) -> None:
        """Read the file at the next poll; may be called by a signal handler."""
        self._requested = True

    def poll(self) -> Config | ConfigError | None:
        """See :class:`ConfigSource`."""
        now = self._stamp()
        settled, self._seen = now == self._seen, now
        if not self._requested and (now is None or now == self._read or not settled):
            return None
        self._requested, self._read = False, now
        try:
            return self._load()
        except ConfigError as error:
            return error
        except Exception as error:  # a fault of ours over a file must not end a running agent
            return ConfigError(f"{self._path}: unexpected {type(error).__name__}: {error}; please report it")

    def _stamp(self) -> _Stamp | None:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_ino, found.st_size


def applicable(old: Config, new: Config) -> tuple[Config, list[str]]:
    """The part of ``new`` that applies without a restart, and the keys that need one.

    A change to another broker applies at once; a change from no broker to one, or from one to none, does not.
    """
    same = bool(old.kafka.bootstrap) == bool(new.kafka.bootstrap)
    waiting = [] if same else ["kafka.bootstrap"]
    waiting += [f"agent.{key}" for key in AT_START if getattr(old.agent, key) != getattr(new.agent, key)]
    agent = msgspec.structs.replace(new.agent, **{key: getattr(old.agent, key) for key in AT_START})
    return msgspec.structs.replace(new, kafka=new.kafka if same else old.kafka, agent=agent), waiting


def changed_keys(old: msgspec.Struct, new: msgspec.Struct, path: str) -> list[str]:
    """Keys that differ, to any depth of sections."""
    keys: list[str] = []
    for key in old.__struct_fields__:
        before, after, where = getattr(old, key), getattr(new, key), f"{path}.{key}"
        if isinstance(before, msgspec.Struct) and type(before) is type(after):
            keys += changed_keys(before, after, where)
        elif before != after:
            keys.append(where)
    return keys
