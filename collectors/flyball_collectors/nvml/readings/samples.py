"""The driver's own rings of samples, drained at each read so that no burst between two reads is lost."""

from ctypes import Array, byref, c_int, c_uint, c_ulonglong
from math import ceil
from struct import Struct
from typing import NamedTuple

from flyball_collectors.nvml.calls.abi import Sample
from flyball_collectors.nvml.calls.gate import Gate
from flyball_collectors.nvml.calls.values import number_in

POWER, GPU_UTILIZATION = 0, 1  # nvmlSamplingType_t
_PATIENCE = 10  # reads without a new sample until the clock of the samples is taken to have been set back
SAMPLE = Struct("<QQ")
_ROOM = 128  # a driver keeps about that many samples


class Window(NamedTuple):
    """Samples since the previous read: mean by time, minimum, maximum, and 95th percentile by nearest rank."""

    mean: float
    least: float
    most: float
    p95: float


class Ring:
    """One ring of one device; values are multiplied by ``scale`` and left out above ``most``.

    A sample holds for its interval, which began at the sample before; so ``integral`` is exact, and the mean is
    weighted by time. The first read only sets the start time: the ring's content then is older than the agent.
    """

    def __init__(self, gate: Gate, kind: int, scale: float, most: float) -> None:
        self.integral = 0.0
        self._gate = gate
        self._kind = kind
        self._scale = scale
        self._most = most
        self._empty = 0
        self._after = c_ulonglong()
        self._type = c_int()
        self._count = c_uint()
        self._at = (self._after, byref(self._type), byref(self._count))
        self._samples: Array[Sample] | None = None

    @property
    def started(self) -> bool:
        """Whether the device has a ring, and its start time is set."""
        return self._after.value > 0

    def read(self) -> Window | None:
        """Samples since the previous read, ``None`` if there are none."""
        values, spans_s = self._advance(self._fresh())
        if not values:
            return None
        sum_ = sum(value * span_s for value, span_s in zip(values, spans_s, strict=True))
        self.integral += sum_
        ordered = sorted(values)
        return Window(sum_ / sum(spans_s), ordered[0], ordered[-1], ordered[ceil(0.95 * len(ordered)) - 1])

    def _fresh(self) -> list[tuple[int, float]]:
        if not self._samples:  # without a buffer, the call returns how many samples there can be
            if not self._gate.call("nvmlDeviceGetSamples", self._kind, *self._at, None):
                return []
            self._samples = (Sample * max(self._count.value, _ROOM))()
        self._count.value = len(self._samples)
        if not self._gate.call("nvmlDeviceGetSamples", self._kind, *self._at, self._samples):
            return []
        kind, used = self._type.value, memoryview(self._samples).cast("B")[: self._count.value * SAMPLE.size]
        fresh: list[tuple[int, float]] = []
        for time_us, bits in SAMPLE.iter_unpack(used):
            number = number_in(kind, bits)
            if number is not None and 0 <= number * self._scale <= self._most:
                fresh.append((time_us, number * self._scale))
        fresh.sort()
        return fresh

    def _advance(self, samples: list[tuple[int, float]]) -> tuple[list[float], list[float]]:
        """Return the new samples: their values and the seconds that each one covers."""
        values: list[float] = []
        spans_s: list[float] = []
        last_us = self._after.value
        if samples and not last_us:
            self._after.value = samples[-1][0]
            return values, spans_s
        for time_us, value in samples:
            if time_us > last_us:
                values.append(value)
                spans_s.append((time_us - last_us) / 1e6)
                last_us = time_us
        self._after.value = last_us
        self._empty = 0 if values else self._empty + 1
        if self._empty >= _PATIENCE:
            self._after.value = self._empty = 0
        return values, spans_s
