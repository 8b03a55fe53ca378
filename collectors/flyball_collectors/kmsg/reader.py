"""Reads the kernel log in a thread of its own, from the end on."""

import errno
import logging
import os
import select
import threading
import time
from collections.abc import Callable
from pathlib import Path

from flyball_collectors.kmsg.record import LogRecord, parse_record

_LOG = logging.getLogger(__name__)
_RECORD_BYTES = 16_384  # the kernel's longest record is half of it; a shorter buffer would be refused
_AT_ONCE = 1000  # records
_REST_MS = 200  # after an end or a fault, so that neither costs a core

Take = Callable[[LogRecord, int], None]


class KmsgReader:
    """Passes each record, with the wall time in nanoseconds when it was read, to ``take`` until :meth:`close`.

    ``take`` is called in the reader's thread. ``read`` counts the records, ``missed`` those that the kernel overwrote
    before they were read, by the gaps in their numbers, and ``strange`` the lines that could not be read or taken.
    ``reason`` says why the log is no longer read, or is empty. Raises :class:`OSError` when it cannot be opened.
    """

    def __init__(
        self,
        path: Path,
        take: Take,
        clock: Callable[[], int] = time.time_ns,
        read: Callable[[int, int], bytes] = os.read,
    ) -> None:
        self.read = 0
        self.missed = 0
        self.strange = 0
        self.reason = ""
        self._take = take
        self._clock = clock
        self._read_record = read
        self._next: int | None = None
        self._torn = b""
        self._file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.lseek(self._file, 0, os.SEEK_END)
        except OSError as error:
            if error.errno != errno.ESPIPE:  # a pipe, as tests use, has no past
                os.close(self._file)
                raise
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._thread = threading.Thread(target=self._run, name="kmsg", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread and close the file; a second call does nothing."""
        if self._file < 0:
            return
        os.eventfd_write(self._wake, 1)
        self._thread.join()
        os.close(self._file)
        os.close(self._wake)
        self._file = -1

    def _run(self) -> None:
        ready, wake = select.poll(), select.poll()
        ready.register(self._file, select.POLLIN)
        ready.register(self._wake, select.POLLIN)
        wake.register(self._wake, select.POLLIN)
        while not self.reason:
            if any(file == self._wake for file, _ in ready.poll()):
                return
            if not self._read_all() and wake.poll(_REST_MS):
                return

    def _read_all(self) -> bool:
        """Read all available lines; return false when nothing could be read although data were signalled."""
        any_read = False
        for _ in range(_AT_ONCE):  # an endless storm must not keep the thread from ending
            try:
                data = self._read_record(self._file, _RECORD_BYTES)
            except BlockingIOError:
                return any_read
            except OSError as error:
                if error.errno == errno.EPIPE:  # overwritten; the next read gives the oldest that is left
                    any_read = True
                    continue
                self.reason = f"the kernel log cannot be read any more: {error.strerror}"
                _LOG.warning("%s; its events are lost until the agent restarts", self.reason)
                return any_read
            if not data:
                return False
            any_read = True
            self._take_data(data)
        return any_read

    def _take_data(self, data: bytes) -> None:
        now_ns = self._clock()
        *lines, self._torn = (self._torn + data).split(b"\n")  # the device never tears a record, a pipe may
        for line in lines:
            if not line or line[:1] == b" ":
                continue
            record = parse_record(line)
            if record is None:
                self.strange += 1
                continue
            if self._next is not None and record.sequence > self._next:
                self.missed += record.sequence - self._next
            self._next = record.sequence + 1
            try:
                self._take(record, now_ns)
            except Exception:  # a fault of ours over one line must not end the reading
                if not self.strange:
                    _LOG.exception("a line of the kernel log is left out: %r", record.text[:200])
                self.strange += 1
            self.read += 1
