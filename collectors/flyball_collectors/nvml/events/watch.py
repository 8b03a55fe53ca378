"""Waits for the driver's events in a thread of its own, since NVML's wait blocks."""

import ctypes
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from ctypes import byref, c_ulonglong, c_void_p
from typing import NamedTuple

from flyball_collectors.nvml.calls.abi import EventData
from flyball_collectors.nvml.calls.library import SUCCESS, TIMEOUT, Library

_LOG = logging.getLogger(__name__)

# Event types of nvml.h.
UNCORRECTED_ECC, XID = 0x2, 0x8
MIG_CHANGED, CORRECTED_ECC_STORM = 0x100, 0x200
ROW_RETIRED, ROW_RETIREMENT_FAILED = 0x400, 0x800
CONTAINED_POISON, FATAL_POISON = 0x1000, 0x2000
UNAVAILABLE, RECOVERY_ACTION = 0x4000, 0x8000
WATCHED = (
    XID | UNCORRECTED_ECC | MIG_CHANGED | CORRECTED_ECC_STORM | ROW_RETIRED | ROW_RETIREMENT_FAILED
    | CONTAINED_POISON | FATAL_POISON | UNAVAILABLE | RECOVERY_ACTION
)  # fmt: skip
_WAIT_MS = 200
_REST_S = 1.0  # after a wait that failed, so that a broken driver does not cost a core


class DriverEvent(NamedTuple):
    """One kind of event of one device by its UUID, and the XID for XIDs; else 0, as nvml.h defines no other data."""

    device: str
    kind: int
    data: int


class EventWatch:
    """Collects the events of the added devices, until :meth:`close`; ``reason`` says why it does not."""

    def __init__(self, library: Library, clock: Callable[[], int] = time.time_ns) -> None:
        self.reason = "no device has events"
        self._library = library
        self._clock = clock
        self._lock = threading.Lock()
        self._seen: Counter[DriverEvent] = Counter()
        self._first_ns: dict[DriverEvent, int] = {}
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._open_set()

    def add(self, device: str, handle: c_void_p) -> None:
        """Watch one device, if it is not watched yet and supports events."""
        kinds = c_ulonglong()
        with self._lock:
            watched = self._devices.get(handle.value) == device
        if (
            watched
            or not self._open
            or self._library.call("nvmlDeviceGetSupportedEventTypes", handle, byref(kinds)) != SUCCESS
        ):
            return
        kinds.value &= WATCHED
        if kinds.value and self._library.call("nvmlDeviceRegisterEvents", handle, kinds, self._set) == SUCCESS:
            with self._lock:
                self._devices[handle.value] = device
                self.reason = ""

    def _open_set(self) -> None:
        self._devices: dict[int | None, str] = {}
        self._set = c_void_p()
        code = self._library.call("nvmlEventSetCreate", byref(self._set))
        self._open = code == SUCCESS
        if not self._open:
            self.reason = f"no event set: {self._library.text_of(code)}"

    def again(self) -> None:
        """Restart after :meth:`close`, without devices; collected events are kept."""
        self.reason = "no device has events"
        self._stop.clear()
        self._open_set()
        self.start()

    def start(self) -> None:
        """Start waiting; devices may still be added."""
        if self._open and self._thread is None:
            self._thread = threading.Thread(target=self._run, name="nvml-events", daemon=True)
            self._thread.start()

    def drain(self) -> Mapping[DriverEvent, tuple[int, int]]:
        """Events since the last call, each with its first time (ns) and count.

        Equal events are counted, not listed: a single fault can cause thousands.
        """
        with self._lock:
            seen = {what: (self._first_ns[what], count) for what, count in self._seen.items()}
            self._seen.clear()
            self._first_ns.clear()
        return seen

    def counts(self) -> Mapping[DriverEvent, int]:
        """Count of each event since the last :meth:`drain`."""
        with self._lock:
            return dict(self._seen)

    def close(self) -> None:
        """End the thread; takes at most one wait."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(4 * _WAIT_MS / 1000)
            self._open = self._open and not self._thread.is_alive()  # else NVML still waits on the set
            self._thread = None
        if self._open:
            self._library.call("nvmlEventSetFree", self._set)
            self._open = False

    def _run(self) -> None:
        data = EventData()
        data_at = byref(data)
        wait = ctypes.c_uint(_WAIT_MS)
        while not self._stop.is_set():
            code = self._library.call("nvmlEventSetWait_v2", self._set, data_at, wait)
            if code != SUCCESS:
                if code != TIMEOUT:
                    _LOG.debug("waiting for events: %s", self._library.text_of(code))
                    self._stop.wait(_REST_S)
                continue
            with self._lock:
                device = self._devices.get(data.device)
                if device is not None:
                    kind = int(data.kind)
                    what = DriverEvent(device, kind, int(data.data) if kind == XID else 0)
                    self._seen[what] += 1
                    self._first_ns.setdefault(what, self._clock())
