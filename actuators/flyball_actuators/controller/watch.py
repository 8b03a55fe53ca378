"""One list of objects of the API server, kept up to date by a watch."""

import logging
import random
from collections.abc import Callable
from threading import Event, Lock, Thread
from typing import Generic, TypeVar

from flyball_actuators.platforms.base import PlatformError
from flyball_actuators.platforms.kubernetes.api import Api, Changes, Expired
from flyball_actuators.platforms.kubernetes.kinds import Object

_LOG = logging.getLogger(__name__)
T = TypeVar("T")
Query = tuple[tuple[str, str], ...]
RBAC = "infra/kubernetes/controller.yaml"
_WATCH_S = 240.0
_LONGEST_S = 30.0
_ABSENT_S = 30.0


class Watch(Generic[T]):
    """Lists once, then follows changes in a thread of its own, from where it was after each failure.

    ``keep`` makes of an object what is kept, or ``None`` for one that does not count; ``changed`` is set when
    something that is kept is not what it was. Until the list was read ``synced`` is false; a kind that the cluster
    does not have is an empty list.
    """

    def __init__(
        self, api: Api, path: str, keep: Callable[[Object], T | None], changed: Event, query: Query = ()
    ) -> None:
        self.synced = False
        self.problem = ""
        self._api, self._path, self._keep, self._changed, self._query = api, path, keep, changed, query
        self._lock = Lock()
        self._kept: dict[str, T] = {}
        self._version = ""
        self._changes: Changes | None = None
        self._stop = Event()
        self._thread = Thread(target=self._run, name=f"watch {path}", daemon=True)
        self._thread.start()

    def all(self) -> list[T]:
        """What is kept now."""
        with self._lock:
            return list(self._kept.values())

    def close(self) -> None:
        """End the thread."""
        self._stop.set()
        changes = self._changes
        if changes is not None:
            changes.close()
        self._thread.join(1.0)

    def _run(self) -> None:
        failures = 0
        while not self._stop.is_set():
            try:
                if self._version or self._list():
                    self._follow()
                    failures = 0
                    self._stop.wait(random.random())  # a server that ends each watch at once is not asked at once
                else:
                    self._stop.wait(_ABSENT_S)
            except Expired:
                self._version = ""
                self._stop.wait(random.random())
            except PlatformError as error:
                failures += 1
                if failures > 1:  # the end of a connection alone is nothing: the next watch goes on where it was
                    self._set_problem(str(error))
                if failures > 3:
                    self._version = ""
                self._stop.wait(min(_LONGEST_S, 0.25 * 2**failures) * (0.5 + random.random() / 2))
            except Exception as error:  # a fault of ours must not leave a list that is silently old
                failures += 1
                self._version = ""
                _LOG.exception("%s: list anew", self._path)
                self._set_problem(f"{type(error).__name__}: {error}")
                self._stop.wait(_LONGEST_S)

    def _list(self) -> bool:
        """Read the whole list; whether there is one that can be watched."""
        answer = self._api.listed(self._path, self._query)
        if not answer.ok and answer.status != 404:
            hint = f"; grant it as {RBAC} does" if answer.status == 403 else ""
            raise PlatformError(f"listing {self._path}: {answer.message or f'HTTP {answer.status}'}{hint}")
        found: dict[str, T] = {}
        for obj in answer.body if answer.ok else ():
            kept = self._keep(obj)
            if kept is not None:
                found[_key(obj)] = kept
        with self._lock:
            news = found != self._kept or not self.synced
            self._kept, self.synced, self.problem = found, True, ""
        if news:
            self._changed.set()
        self._version = answer.version
        return answer.ok

    def _follow(self) -> None:
        self._changes = changes = self._api.watch(self._path, self._version, self._query, _WATCH_S)
        self.problem = ""
        for kind, obj in changes:
            if self._stop.is_set():
                return
            if kind != "BOOKMARK":
                self._take(kind, obj)
            self._version = obj["metadata"]["resourceVersion"]

    def _take(self, kind: str, obj: Object) -> None:
        key, kept = _key(obj), None if kind == "DELETED" else self._keep(obj)
        with self._lock:
            if kept == self._kept.get(key):
                return
            if kept is None:
                del self._kept[key]
            else:
                self._kept[key] = kept
        self._changed.set()

    def _set_problem(self, problem: str) -> None:
        if problem != self.problem and not self._stop.is_set():
            _LOG.warning("%s; what was seen before is kept", problem)
        self.problem = problem


def _key(obj: Object) -> str:
    metadata = obj["metadata"]
    return f"{metadata.get('namespace', '')}/{metadata['name']}"
