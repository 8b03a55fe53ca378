"""Waits for the driver's events in a thread of its own, since NVML's wait blocks."""

import ctypes
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

_LOG = logging.getLogger(__name__)

# Event types of nvml.h.
XID = 0x8
UNCORRECTED_ECC = 0x2
ROW_RETIRED, ROW_RETIREMENT_FAILED = 0x400, 0x800
WATCHED = XID | UNCORRECTED_ECC | ROW_RETIRED | ROW_RETIREMENT_FAILED
_TIMEOUT = 10  # nvmlReturn_t: nothing happened
_WAIT_MS = 200
_REST_S = 1.0  # after a wait that failed, so that a broken driver does not cost a core


class Happening(NamedTuple):
    """One kind of event of one device (its place in the list of handles) and its datum, the XID for XIDs."""

    device: int
    kind: int
    data: int


class EventWatch:
    """Collects the events of some devices until :meth:`close`; ``reason`` says why it does not, or is empty."""

    def __init__(self, nvml: Any, handles: list[Any], clock: Callable[[], int] = time.time_ns) -> None:
        self.reason = ""
        self._nvml = nvml
        self._clock = clock
        self._failed: type[Exception] = nvml.NVMLError
        self._lock = threading.Lock()
        self._seen: Counter[Happening] = Counter()
        self._first_ns: dict[Happening, int] = {}
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._places = {_pointer(handle): place for place, handle in enumerate(handles)}
        try:
            self._set: Any = nvml.nvmlEventSetCreate()
        except self._failed as error:
            self.reason = f"no event set: {error}"
            return
        watched = sum(self._register(handle) for handle in handles)
        if not watched:
            self.reason = "no device has events"
        self._thread = threading.Thread(target=self._run, name="nvml-events", daemon=True)
        self._thread.start()

    def drain(self) -> Mapping[Happening, tuple[int, int]]:
        """What happened since the last call, each with when it was first seen (ns) and how often.

        Equal events are counted, not listed: a single fault can bring thousands.
        """
        with self._lock:
            seen = {what: (self._first_ns[what], count) for what, count in self._seen.items()}
            self._seen.clear()
            self._first_ns.clear()
        return seen

    def counts(self) -> Mapping[Happening, int]:
        """How often each thing happened since the last :meth:`drain`."""
        with self._lock:
            return dict(self._seen)

    def close(self) -> None:
        """End the thread; takes as long as one wait at most."""
        self._stop.set()
        if self._thread is None:
            return
        self._thread.join(4 * _WAIT_MS / 1000)
        if not self._thread.is_alive():  # else NVML still waits on the set
            try:
                self._nvml.nvmlEventSetFree(self._set)
            except self._failed as error:
                _LOG.debug("event set not freed: %s", error)
        self._thread = None

    def _register(self, handle: Any) -> bool:
        try:
            kinds = int(self._nvml.nvmlDeviceGetSupportedEventTypes(handle)) & WATCHED
            if kinds:
                self._nvml.nvmlDeviceRegisterEvents(handle, kinds, self._set)
            return bool(kinds)
        except self._failed as error:
            _LOG.debug("events of a device cannot be had: %s", error)
            return False

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                data = self._nvml.nvmlEventSetWait_v2(self._set, _WAIT_MS)
            except self._failed as error:
                if getattr(error, "value", None) != _TIMEOUT:
                    _LOG.debug("waiting for events: %s", error)
                    self._stop.wait(_REST_S)
                continue
            place = self._places.get(_pointer(data.device))
            if place is None:
                continue
            what = Happening(place, int(data.eventType), int(data.eventData))
            with self._lock:
                self._seen[what] += 1
                self._first_ns.setdefault(what, self._clock())


def _pointer(handle: Any) -> int:
    """Address in a device handle, which is the same for the same device."""
    return ctypes.cast(handle, ctypes.c_void_p).value or 0
