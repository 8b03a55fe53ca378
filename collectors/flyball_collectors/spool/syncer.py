"""Syncs written data to disk in a thread of its own, so that no caller waits for the disk."""

import logging
import os
import threading

_LOG = logging.getLogger(__name__)


class Syncer:
    """Syncs marked files, at most every ``period_s`` seconds; the thread starts with the first mark."""

    def __init__(self, folder_fd: int, period_s: float) -> None:
        self.failures = 0
        self._folder_fd = folder_fd
        self._period_s = period_s
        self._lock = threading.Lock()
        self._marked: dict[int, int] = {}
        self._known = -1
        self._dirty = threading.Event()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def mark(self, id: int, fd: int) -> None:
        """Note that file ``fd``, named by ``id``, was written; it may be closed or deleted afterwards."""
        if id in self._marked:  # without the lock: if an id is removed at this moment, its sync has yet to begin
            return
        try:
            copy = os.dup(fd)
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="spool-sync", daemon=True)
                thread.start()
                self._thread = thread
        except (OSError, RuntimeError) as error:  # no descriptor or no thread to be had
            self._note(error)
            return
        with self._lock:
            self._marked[id] = copy
        self._dirty.set()

    def close(self) -> None:
        """Sync marked files and end."""
        self._closing.set()
        self._dirty.set()
        if self._thread is not None:
            self._thread.join()
        self._sync()

    def _run(self) -> None:
        while not self._closing.is_set():
            self._dirty.wait()
            self._closing.wait(self._period_s)  # what is written meanwhile is synced with it
            self._dirty.clear()
            self._sync()

    def _sync(self) -> None:
        with self._lock:
            marked, self._marked = self._marked, {}
        for id, fd in marked.items():
            try:
                os.fdatasync(fd)
                if id > self._known:  # a new file: its name must outlive a power cut, too
                    os.fsync(self._folder_fd)
                    self._known = id
            except OSError as error:
                self._note(error)
            finally:
                os.close(fd)

    def _note(self, error: Exception) -> None:
        self.failures += 1
        if self.failures == 1:
            _LOG.warning("the spool cannot be synced (%s): a power cut may lose more than documented", error)
