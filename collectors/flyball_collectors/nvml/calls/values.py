"""NVML's tagged numbers, and the plausibility of a row's values."""

import logging
from collections import Counter
from collections.abc import Sequence
from struct import Struct

import numpy as np
from numpy.typing import NDArray

from flyball_contracts.metrics import Layout, Metric

_LOG = logging.getLogger(__name__)
DOUBLE, UINT, ULONG, ULONG_LONG = 0, 1, 2, 3  # nvmlValueType_t
WIDE = frozenset({0, 2, 3, 4})  # the types that hold more than 32 bits
_BITS = Struct("<Q")
_NUMBERS = {DOUBLE: Struct("<d"), 4: Struct("<q"), 5: Struct("<i4x"), 6: Struct("<H6x")}


def number_in(kind: int, bits: int) -> float | None:
    """Number in the 64 bits of an ``nvmlValue_t`` of type ``kind``; ``None`` for an unknown type."""
    if kind in (ULONG_LONG, ULONG):
        return float(bits)
    if kind == UINT:
        return float(bits & 0xFFFFFFFF)
    layout = _NUMBERS.get(kind)
    return None if layout is None else float(layout.unpack(_BITS.pack(bits))[0])


def _most(metric: Metric) -> float:
    """Largest possible gauge, or largest possible increase of a counter per second, of a device."""
    if metric.unit == "1" and any(word in metric.name for word in ("utilization", "activity", "occupancy", "stall")):
        return 1.0
    return {"W": 1e4, "J": 1e4, "Cel": 250.0, "Hz": 2e10, "By": 2.0**50, "s": 1.5, "{cycle}": 2e13}.get(
        metric.unit, float("inf")
    )


class Validator:
    """Converts the devices' raw values to frames of a layout.

    Counters become increases since the device's previous row, NaN on its first and after a missing one; one that went
    down was reset or wrapped: NaN. Impossible values (drivers have reported 8e8 % and 9e18
    degrees) become NaN, and are counted in ``rejected`` by device and metric.
    """

    def __init__(self, layout: Layout) -> None:
        self.rejected: dict[str, Counter[str]] = {}
        self._metrics = layout.metrics
        counts = [metric.instrument == "counter" for metric in layout.metrics]
        most = np.array([_most(metric) for metric in layout.metrics])
        self._counters = np.flatnonzero(counts)
        self._fastest = most[self._counters]
        self._least = np.array([-273.0 if "temperature" in metric.name else 0.0 for metric in layout.metrics])
        self._least[self._counters] = -np.inf
        self._most = np.where(counts, np.inf, most)
        self._devices: tuple[str, ...] = ()
        self._last = np.empty((0, len(self._counters)))

    def frame(self, devices: Sequence[str], rows: Sequence[Sequence[float]], period_s: float) -> NDArray[np.float32]:
        """Values ``float32[devices, metrics]``; ``period_s`` is the time since the previous frame."""
        self._align(tuple(devices))
        values = np.array(rows, np.float64)
        wrong = (values < self._least) | (values > self._most)
        if wrong.any():
            self._reject(values, np.argwhere(wrong))
        counters = values[:, self._counters]
        increases = counters - self._last
        self._last = counters
        values[:, self._counters] = increases
        down = increases < 0
        if down.any():
            increases[down] = np.nan
            values[:, self._counters] = increases
        fast = increases > self._fastest * (period_s + 1.0)  # with room for a late read
        if fast.any():
            places = np.argwhere(fast)
            places[:, 1] = self._counters[places[:, 1]]
            self._reject(values, places)
        return values.astype(np.float32)

    def _align(self, devices: tuple[str, ...]) -> None:
        """Move the counters of remaining devices with their rows."""
        if devices == self._devices:
            return
        last = np.full((len(devices), len(self._counters)), np.nan)
        for row, device in enumerate(devices):
            if device in self._devices:
                last[row] = self._last[self._devices.index(device)]
        self.rejected = {device: self.rejected.get(device, Counter()) for device in devices}
        self._devices, self._last = devices, last

    def _reject(self, values: NDArray[np.float64], places: NDArray[np.intp]) -> None:
        pairs: list[tuple[int, int]] = places.tolist()
        for row, column in pairs:
            device, key = self._devices[row], self._metrics[column].key
            if key not in self.rejected[device]:
                text = "device %s says %s = %g, which cannot be; such values are left out"
                _LOG.warning(text, device, key, values[row, column])
            self.rejected[device][key] += 1
            values[row, column] = np.nan
