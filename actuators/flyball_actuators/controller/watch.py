"""A list of API objects, kept current by a watch."""

import logging
import random
from collections.abc import Callable
from threading import Event, Lock, Thread
from typing import Generic, TypeVar

from flyball_actuators.platforms.base import PlatformError
from flyball_actuators.platforms.kubernetes.api import Api, Expired, WatchEvents
from flyball_actuators.platforms.kubernetes.kinds import Object

_LOG = logging.getLogger(__name__)
T = TypeVar("T")
Query = tuple[tuple[str, str], ...]
RBAC = "infra/kubernetes/controller.yaml"
_WATCH_S = 240.0
_LONGEST_S = 30.0
_ABSENT_S = 30.0


class Watch(Generic[T]):
    """Lists once, then follows changes in a thread of its own; resumes after failures.

    ``convert`` returns what to keep of an object, ``None`` to ignore it; ``changed`` is set when a kept value changes.
    ``synced`` is false until the list has been read; a kind that the cluster does not have is an empty list.
    """

    def __init__(
        self, api: Api, path: str, convert: Callable[[Object], T | None], changed: Event, query: Query = ()
    ) -> None:
        self.synced = False
        self.problem = ""
        self._api, self._path, self._convert, self._changed, self._query = api, path, convert, changed, query
        self._lock = Lock()
        self._objects: dict[str, T] = {}
        self._version = ""
        self._events: WatchEvents | None = None
        self._stop = Event()
        self._thread = Thread(target=self._run, name=f"watch {path}", daemon=True)
        self._thread.start()

    def all(self) -> list[T]:
        """The kept values."""
        with self._lock:
            return list(self._objects.values())

    def close(self) -> None:
        """Stop the thread."""
        self._stop.set()
        events = self._events
        if events is not None:
            events.close()
        self._thread.join(1.0)

    def _run(self) -> None:
        failures = 0
        while not self._stop.is_set():
            try:
                if self._version or self._list():
                    self._follow()
                    failures = 0
                    self._stop.wait(random.random())  # a server that ends each watch at once is not queried at once
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
            except Exception as error:  # a bug must not leave a list silently stale
                failures += 1
                self._version = ""
                _LOG.exception("%s: listing again", self._path)
                self._set_problem(f"{type(error).__name__}: {error}")
                self._stop.wait(_LONGEST_S)

    def _list(self) -> bool:
        """Read the whole list; return whether it can be watched."""
        answer = self._api.listed(self._path, self._query)
        if not answer.ok and answer.status != 404:
            hint = f"; grant it as {RBAC} does" if answer.status == 403 else ""
            raise PlatformError(f"listing {self._path}: {answer.message or f'HTTP {answer.status}'}{hint}")
        found: dict[str, T] = {}
        for obj in answer.body if answer.ok else ():
            converted = self._convert(obj)
            if converted is not None:
                found[_key(obj)] = converted
        with self._lock:
            changed_any = found != self._objects or not self.synced
            self._objects, self.synced, self.problem = found, True, ""
        if changed_any:
            self._changed.set()
        self._version = answer.version
        return answer.ok

    def _follow(self) -> None:
        self._events = events = self._api.watch(self._path, self._version, self._query, _WATCH_S)
        self.problem = ""
        for kind, obj in events:
            if self._stop.is_set():
                return
            if kind != "BOOKMARK":
                self._apply_event(kind, obj)
            self._version = obj["metadata"]["resourceVersion"]

    def _apply_event(self, kind: str, obj: Object) -> None:
        key, converted = _key(obj), None if kind == "DELETED" else self._convert(obj)
        with self._lock:
            if converted == self._objects.get(key):
                return
            if converted is None:
                del self._objects[key]
            else:
                self._objects[key] = converted
        self._changed.set()

    def _set_problem(self, problem: str) -> None:
        if problem != self.problem and not self._stop.is_set():
            _LOG.warning("%s; what was seen before is kept", problem)
        self.problem = problem


def _key(obj: Object) -> str:
    metadata = obj["metadata"]
    return f"{metadata.get('namespace', '')}/{metadata['name']}"
