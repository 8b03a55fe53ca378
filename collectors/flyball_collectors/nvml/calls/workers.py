"""Runs one job per device; a job that hangs affects only its own device."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

_LOG = logging.getLogger(__name__)
T = TypeVar("T")


class _Batch:
    """Jobs of one thread: waiting, running with its start time, and finished."""

    def __init__(self, jobs: Mapping[str, Callable[[], Any]]) -> None:
        self.waiting = deque(jobs.items())
        self.results: dict[str, Any] = {}
        self.running: str | None = None
        self.since_s = 0.0
        self.abandoned = False
        self.ended: SimpleQueue[None] = SimpleQueue()


class Workers:
    """Runs jobs by name in one thread, one after the other, which is cheap as long as none hangs.

    A job that takes longer than ``patience_s`` keeps its thread, and its name is not run again until it returns; the
    jobs waiting behind it continue in other threads. So :meth:`run` takes at most twice that long beyond the time of
    the other jobs. One thread calls the methods.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._stuck: dict[str, float] = {}
        self._failed: set[str] = set()
        self._inbox: SimpleQueue[_Batch | None] | None = None

    def stuck(self) -> dict[str, float]:
        """Names whose job has not returned, and for how many seconds."""
        now_s = self._clock()
        with self._lock:
            return {name: now_s - since_s for name, since_s in self._stuck.items()}

    def run(self, jobs: Mapping[str, Callable[[], T]], patience_s: float) -> dict[str, T]:
        """Results of the jobs that ended in time, by name; a job that raises has none, and is logged."""
        with self._lock:
            batch = _Batch({name: job for name, job in jobs.items() if name not in self._stuck})
        if self._inbox is None:
            self._inbox = self._start_thread()
        self._inbox.put(batch)
        if self._wait(batch, patience_s):
            return batch.results
        self._inbox = None  # its thread belongs to the stuck job now
        alone = [_Batch({name: job}) for name, job in batch.waiting]
        for one in alone:
            inbox = self._start_thread()
            inbox.put(one)
            inbox.put(None)
        results = dict(batch.results)
        for one in alone:
            if self._wait(one, patience_s):
                results |= one.results
        return results

    def close(self) -> None:
        """End the thread; a stuck one ends with its job."""
        if self._inbox is not None:
            self._inbox.put(None)
            self._inbox = None

    def _wait(self, batch: _Batch, patience_s: float) -> bool:
        """Wait until a batch has ended, or one of its jobs has run for too long; return whether it ended."""
        wait_s = patience_s
        while True:
            try:
                batch.ended.get(timeout=wait_s)
                return True
            except Empty:
                with self._lock:
                    if batch.running is None:
                        if not batch.waiting:
                            return True
                        wait_s = patience_s  # the batch has not begun yet
                        continue
                    wait_s = batch.since_s + patience_s - self._clock()
                    if wait_s <= 0:
                        batch.abandoned = True
                        self._stuck[batch.running] = batch.since_s
                        return False

    def _start_thread(self) -> SimpleQueue[_Batch | None]:
        inbox: SimpleQueue[_Batch | None] = SimpleQueue()
        threading.Thread(target=self._serve, args=(inbox,), name="nvml-reader", daemon=True).start()
        return inbox

    def _serve(self, inbox: SimpleQueue[_Batch | None]) -> None:
        while (batch := inbox.get()) is not None:
            if not self._carry_out(batch):
                return

    def _carry_out(self, batch: _Batch) -> bool:
        """Run a batch; return false when it was abandoned meanwhile, together with the thread."""
        while True:
            with self._lock:
                if not batch.waiting:
                    break
                name, job = batch.waiting.popleft()
                batch.running, batch.since_s = name, self._clock()
            results: list[Any] = []
            try:
                results.append(job())
                self._failed.discard(name)
            except Exception:
                if name not in self._failed:
                    _LOG.exception("reading %s failed; its values are left out while it does", name)
                self._failed.add(name)
            with self._lock:
                if batch.abandoned:
                    del self._stuck[name]
                    return False
                if results:
                    batch.results[name] = results[0]
                batch.running = None
        batch.ended.put(None)
        return True
