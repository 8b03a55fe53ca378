"""GPU performance monitoring (GPM): activity of the SMs and the memory of a Hopper or later between two samples."""

import time
from collections.abc import Callable, Mapping
from ctypes import byref, c_uint, c_void_p
from struct import Struct

from flyball_collectors.nvml.calls.abi import GPM_V1, GpmMetrics, GpmSupport
from flyball_collectors.nvml.calls.gate import Gate
from flyball_collectors.nvml.calls.library import INVALID_ARGUMENT, NOT_FOUND, SUCCESS

_APART_S = 0.1  # samples closer than that give no valid answer
_PERCENT = (1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13)
PCIE_SENT, PCIE_RECEIVED = 20, 21  # MiB/s
_RATES = (PCIE_SENT, PCIE_RECEIVED)
_CYCLES = (248, 249)  # since boot; unknown to drivers before 2025
_OLD = _PERCENT + _RATES
_AS_THEY_ARE = frozenset(_RATES + _CYCLES)
METRIC = Struct("<Iid24x")  # id, return code and value of a GpmMetric
IDS = _OLD + _CYCLES
Activity = Mapping[int, float]  # by metric id of nvml.h: shares 0 to 1, cycles as counters, rates in MiB/s


def scaled(id: int, value: float) -> float:
    """Value of a metric in the units of :data:`Activity`."""
    return value if id in _AS_THEY_ARE else min(value / 100, 1.0)


class Gpm:
    """Activity of a GPU, or of one of its GPU instances, between one read and the next."""

    def __init__(self, gate: Gate, instance: int | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._gate = gate
        self._clock = clock
        self._instance = instance
        self._taken_s: float | None = None
        self._samples: list[c_void_p] = []
        support = GpmSupport(version=GPM_V1)
        self.supported = gate.call("nvmlGpmQueryDeviceSupport", byref(support)) and bool(support.supported)
        if self.supported:
            self._get = GpmMetrics(version=GPM_V1)
            self._get_at = byref(self._get)
            self._select(IDS)
            self.supported = all(self._allocate() for _ in range(2))

    def read(self) -> Activity:
        """Activity since the previous read; empty on the first, if two follow too closely, and without GPM."""
        now_s = self._clock()
        if not self.supported or (self._taken_s is not None and now_s - self._taken_s < _APART_S):
            return {}
        first, second = self._samples
        if not self._take(second):
            self._taken_s = None
            return {}
        before_s, self._taken_s = self._taken_s, now_s
        self._samples = [second, first]
        return {} if before_s is None else self._between(first, second)

    def close(self) -> None:
        """Free the samples."""
        for sample in self._samples:
            self._gate.library.call("nvmlGpmSampleFree", sample)
        self._samples = []
        self.supported = False

    def _allocate(self) -> bool:
        sample = c_void_p()
        if self._gate.library.call("nvmlGpmSampleAlloc", byref(sample)) != SUCCESS:
            return False
        self._samples.append(sample)
        return True

    def _take(self, sample: c_void_p) -> bool:
        if self._instance is None:
            return self._gate.call("nvmlGpmSampleGet", sample)
        return self._gate.call("nvmlGpmMigSampleGet", c_uint(self._instance), sample)

    def _between(self, first: c_void_p, second: c_void_p) -> Activity:
        get = self._get
        get.before, get.after, get.count = first, second, len(self._ids)
        code = self._gate.library.call("nvmlGpmMetricsGet", self._get_at)
        if code == INVALID_ARGUMENT and self._ids != _OLD:  # an older driver, which refuses what it does not know
            self._select(_OLD)
            return self._between(first, second)
        if code != SUCCESS:
            return {}
        return {id: scaled(id, value) for id, code, value in METRIC.iter_unpack(self._answers) if code == SUCCESS}

    def _select(self, ids: tuple[int, ...]) -> None:
        self._ids = ids
        for metric, id in zip(self._get.metrics, ids, strict=False):
            metric.id, metric.code = id, NOT_FOUND
        start = GpmMetrics.metrics.offset
        self._answers = memoryview(self._get).cast("B")[start : start + len(ids) * METRIC.size]
