"""Values as text."""

from math import floor, isfinite, log10

from flyball_contracts.metrics import Metric

_PREFIXES = {-3: "n", -2: "µ", -1: "m", 0: "", 1: "k", 2: "M", 3: "G", 4: "T", 5: "P"}
_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi")
_LONG = ((86_400.0, "d"), (3_600.0, "h"), (120.0, "min"))
_SHARES = ("utilization", "activity", "occupancy", "speed_ratio", "stall", "progress", ".min", ".max", ".p95")


def quantity(value: float, metric: Metric) -> str:
    """A value with its unit, in about three significant digits; empty for NaN and infinity, ``+`` before an increase.

    Shares are in percent. Counts have no unit: the metric's name says what is counted.
    """
    if not isfinite(value):
        return ""
    sign = "+" if metric.instrument == "counter" and value >= 0 else ""
    if metric.unit == "By":
        power = min(max(int(log10(abs(value)) / log10(1024)), 0), len(_BINARY) - 1) if value else 0
        return f"{sign}{number(value / 1024**power)} {_BINARY[power]}B"
    if metric.unit == "s" and abs(value) >= _LONG[-1][0]:
        size, unit = next((size, unit) for size, unit in _LONG if abs(value) >= size)
        return f"{sign}{number(value / (60.0 if unit == 'min' else size))} {unit}"
    if metric.unit in ("W", "J", "Hz", "s"):
        plain = not value or (metric.unit == "s" and abs(value) >= 1)
        power = 0 if plain else min(max(floor(log10(abs(value)) / 3), -3), 5)
        return f"{sign}{number(value / 1000.0**power)} {_PREFIXES[power]}{metric.unit}"
    if metric.unit == "1" and metric.name.endswith(_SHARES):
        return f"{number(100 * value)} %"
    unit = {"Cel": " °C"}.get(metric.unit, " /s" if metric.unit.endswith("/s") else "")
    return f"{sign}{number(value)}{unit}"


def number(value: float) -> str:
    """About three significant digits, whole numbers in full, and never an exponent."""
    if value == round(value):
        return f"{value:.0f}"
    if not value or abs(value) < 0.001:
        return f"{value:.1g}" if abs(value) >= 0.0001 else "~0"
    digits = max(0, 2 - floor(log10(abs(value))))
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
