"""Ends a worker that has lag and makes no progress."""

import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

log = logging.getLogger(__name__)
STUCK = 75
BEAT_S = 2.0


class Watchdog(threading.Thread):
    """Looks every :data:`BEAT_S` seconds: progress or no lag touches ``health_file``, neither for too long ends us.

    ``progress`` is a counter that rises with each batch; ``lag`` is how many messages wait. ``end`` is called with the
    exit status (:data:`STUCK`) when ``limit_s`` has gone by.
    """

    def __init__(
        self,
        progress: Callable[[], int],
        lag: Callable[[], int],
        limit_s: float,
        health_file: Path | None,
        end: Callable[[int], object] = os._exit,
    ) -> None:
        super().__init__(name="watchdog", daemon=True)
        self._progress, self._lag, self._limit_s = progress, lag, limit_s
        self._health_file, self._end = health_file, end
        self._stop_event = threading.Event()
        self._seen, self._since = -1, time.monotonic()

    def run(self) -> None:
        """Look until stopped."""
        while not self._stop_event.wait(BEAT_S):
            self.look(time.monotonic())

    def look(self, now_s: float) -> None:
        """Judge once, at monotonic time ``now_s``."""
        seen = self._progress()
        if seen != self._seen or self._lag() == 0:
            self._seen, self._since = seen, now_s
            if self._health_file is not None:
                self._health_file.touch()
        elif now_s - self._since > self._limit_s:
            log.critical("worker ends: %d messages wait and none was used for %.0f s", self._lag(), self._limit_s)
            self._end(STUCK)

    def stop(self) -> None:
        """Stop looking."""
        self._stop_event.set()
