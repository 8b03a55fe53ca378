"""Ends a worker that is stuck: messages wait and none is used, or it never gets its partitions back."""

import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from flyball_contracts.health import HealthFile

log = logging.getLogger(__name__)
STUCK = 75
"""Exit status of a worker that the watchdog ended; a supervisor starts it again."""
BEAT_S = 2.0


class Watched(Protocol):
    """The interface of a worker to its watchdog, which calls all four from its own thread."""

    def joined(self) -> bool:
        """Whether the consumer group has assigned partitions to this process, possibly none."""
        ...

    def progress(self) -> int:
        """Return a counter that rises with each tick that a lane closes, and with each step."""
        ...

    def lag(self) -> int:
        """Number of waiting messages."""
        ...

    def stacks(self) -> str:
        """Where its threads and tasks stand."""
        ...


class Watchdog(threading.Thread):
    """Checks a worker every :data:`BEAT_S` seconds; progress, or no lag, touches ``health_file``.

    After ``limit_s`` without either, ``end`` is called with the exit status :data:`STUCK`. A worker that waits for its
    partitions is not healthy, and is ended as well if that takes too long.
    """

    def __init__(
        self,
        watched: Watched,
        limit_s: float,
        health_file: Path | None,
        *,
        now_s: float | None = None,
        end: Callable[[int], object] = os._exit,
    ) -> None:
        super().__init__(name="watchdog", daemon=True)
        self._watched, self._limit_s, self._health_file, self._end = watched, limit_s, HealthFile(health_file), end
        self._stop_event = threading.Event()
        self._seen, self._well_s = -1, time.monotonic() if now_s is None else now_s

    def run(self) -> None:
        """Check until stopped."""
        while not self._stop_event.wait(BEAT_S):
            self.look(time.monotonic())

    def look(self, now_s: float) -> None:
        """Check once, at monotonic time ``now_s``."""
        why = self._ill()
        if why is None:
            self._well_s = now_s
            self._health_file.touch()
        elif now_s - self._well_s > self._limit_s:
            log.critical("worker ends: for %.0f s %s", self._limit_s, why)
            try:  # logging may fail, as on a full disk; the worker ends all the same
                log.critical("it stands here:\n%s", self._watched.stacks())
            finally:
                self._end(STUCK)

    def stop(self) -> None:
        """Stop checking."""
        self._stop_event.set()

    def _ill(self) -> str | None:
        if not self._watched.joined():
            return "the consumer group gave it no partitions"
        before, self._seen = self._seen, self._watched.progress()
        if self._seen != before:
            return None
        lag = self._watched.lag()
        return f"{lag} messages waited and none was used" if lag else None
