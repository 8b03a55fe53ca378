"""The cloud as a collector: the machine's place once, and notices as they come."""

import logging
import threading
import time

from flyball_collectors.base import Parts, Place, Reading
from flyball_collectors.cloud.base import Cloud, MetadataError, Notice
from flyball_contracts.records import NodeEvent
from flyball_contracts.records.events import node_event

_LOG = logging.getLogger(__name__)
_MOST_CHARS = 300


class CloudCollector:
    """Queries one cloud in a thread of its own, so that slow responses block nothing.

    ``reason`` says why the last query failed, or is empty; ``failed`` counts failures.
    """

    name = "cloud"

    def __init__(self, cloud: Cloud, node: str, period_s: float = 5.0) -> None:
        self.reason = ""
        self.failed = 0
        self.cloud = cloud
        self._node = node
        self._period_s = period_s
        self._lock = threading.Lock()
        self._parts = Parts()
        self._events: list[NodeEvent] = []
        self._published: set[str] = set()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def read(self, now_ns: int, period_ns: int) -> list[Reading]:
        """Nothing to measure; the first call starts the thread, so that listing the sources sends no request."""
        if self._thread is None and not self._stop.is_set():
            thread = threading.Thread(target=self._run, name="cloud", daemon=True)
            thread.start()
            self._thread = thread  # only now: if no thread can be started, the next call tries again
        return []

    def parts(self) -> Parts:
        """Place of this machine, once the cloud has reported it."""
        with self._lock:
            return self._parts

    def events(self) -> list[NodeEvent]:
        """Notices that are new since the last call."""
        with self._lock:
            events, self._events = self._events, []
        return events

    def close(self) -> None:
        """End the thread; waits for its current request."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def poll(self) -> None:
        """Query once; failed parts are queried again the next time."""
        reasons: list[str] = []
        notices: list[Notice] = []
        try:
            if self._parts.place == Place():
                place = self.cloud.place()
                with self._lock:
                    self._parts = Parts(place=place)
        except MetadataError as error:
            reasons.append(str(error))
        try:
            notices.extend(self.cloud.notices())
        except MetadataError as error:
            reasons.append(str(error))
        self._note(reasons)
        now_ns = time.time_ns()
        fresh = [notice for notice in notices if notice.key not in self._published]
        # A notice that is gone may come again as a new one; after a failed query no notice counts as gone.
        self._published = {notice.key for notice in notices} | (self._published if reasons else set())
        with self._lock:
            self._events += [
                node_event(
                    self._node,
                    now_ns,
                    notice.kind,
                    severity=notice.severity,
                    remedy=notice.remedy,
                    message=notice.message[:_MOST_CHARS],
                )
                for notice in fresh
            ]

    def _note(self, reasons: list[str]) -> None:
        """Store the reason of a failure, and log it once."""
        if reasons:
            level = logging.DEBUG if self.reason else logging.WARNING
            _LOG.log(level, "the metadata of %s: %s (will retry)", self.cloud.name, reasons[0])
            self.failed += 1
        elif self.reason:
            _LOG.warning("the metadata of %s can be had again", self.cloud.name)
        self.reason = reasons[0] if reasons else ""

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self.poll()
            except Exception as error:  # a fault of ours must not end the watch for notices
                self.failed += 1
                self.reason = f"unexpected {type(error).__name__}; report it"
                _LOG.exception("the metadata of %s", self.cloud.name)
            self._stop.wait(self._period_s)
