"""NVML's tagged union of numbers, and which of them can be true."""

from collections.abc import Mapping
from typing import Any

from flyball_contracts.metrics import GPU, Metric

_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")  # by nvmlValueType_t
WIDE = frozenset({0, 2, 3, 4})  # the types that hold more than 32 bits


def number_in(kind: int, union: Any) -> float | None:
    """Number in an ``nvmlValue_t`` of type ``kind``; ``None`` for a type that is not known here."""
    return float(getattr(union, _MEMBERS[kind])) if 0 <= kind < len(_MEMBERS) else None


def _most(metric: Metric) -> float:
    """Largest value of a gauge, or largest increase of a counter per second, that a device can have."""
    if metric.unit == "1" and "utilization" in metric.name:
        return 1.0
    return {"W": 1e4, "J": 1e4, "Cel": 250.0, "Hz": 2e10, "By": 2.0**50, "s": 1.5}.get(metric.unit, float("inf"))


_MOST: Mapping[str, float] = {metric.key: _most(metric) for metric in GPU.metrics}


def implausible(found: Mapping[str, float]) -> list[str]:
    """Keys of gauges that cannot be true: drivers have been seen to report 8e8 % and 9e18 degrees."""
    return [
        key
        for key, value in found.items()
        if GPU.metrics[GPU.column(key)].instrument == "gauge"
        and not (-273.0 if "temperature" in key else 0.0) <= value <= _MOST[key]
    ]


def too_fast(key: str, increase: float, period_s: float) -> bool:
    """Whether a counter cannot have risen by ``increase`` in ``period_s`` seconds, with room for a late read."""
    return increase > _MOST[key] * (period_s + 1.0)
