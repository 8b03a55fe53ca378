"""Numbers and units as text."""

import math
import re

from flyball_contracts.records import Evidence

_UNITS = {"1": "", "Cel": "°C", "By": "B", "gCO2e/kWh": "g/kWh"}
_ANNOTATION = re.compile(r"\{([^}]*)\}")
_STEPS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
MINUS = "\N{MINUS SIGN}"
UNKNOWN = "\N{EN DASH}"


def number(value: float | None, digits: int = 3) -> str:
    """Three significant digits and an SI prefix from ten thousand on; an en dash for unknown values."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    size = abs(value)
    if size >= 10_000:
        for step, prefix in _STEPS:
            if size >= step:
                return f"{_plain(value / step, digits)} {prefix}"
    return _plain(value, digits)


def _plain(value: float, digits: int) -> str:
    if value == 0:
        return "0"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{min(decimals, 6)}f}"
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return text.replace("-", MINUS)


def signed(value: float) -> str:
    """A number with its sign."""
    return f"+{number(value)}" if value > 0 else number(value)


def quantity(value: float | None, unit: str) -> str:
    """A number with its UCUM unit as people write it."""
    shown = _UNITS.get(unit, _ANNOTATION.sub(r"\1", unit))
    if _ANNOTATION.fullmatch(unit):
        shown = ""  # what is counted is in the name
    text = number(value)
    if text == UNKNOWN or not shown:
        return text
    prefixed = text[-1] in "kMGT"  # the prefix belongs to the unit: 1.98 GHz
    return f"{text}{shown}" if prefixed else f"{text} {shown}"


def percent(ratio: float | None, digits: int = 0) -> str:
    """A ratio as a percentage."""
    if ratio is None or not math.isfinite(ratio):
        return UNKNOWN
    return f"{100 * ratio:.{digits}f} %".replace("-", MINUS)


def span(seconds: float) -> str:
    """A duration in its largest fitting unit."""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{number(seconds / size, 2)} {unit}"
    return f"{number(seconds, 2)} s"


def count(number_of: int | float) -> str:
    """A count with up to five digits, above that with a prefix."""
    return f"{number_of:,.0f}" if abs(number_of) < 100_000 else number(float(number_of))


def plural(number_of: int, word: str) -> str:
    """A count with its noun."""
    return f"{count(number_of)} {word}" if number_of == 1 else f"{count(number_of)} {word}s"


def short_name(metric: str) -> str:
    """A metric's key without its namespace: ``hw.temperature{sensor=gpu}`` is ``temperature (gpu)``."""
    name, _, attributes = metric.partition("{")
    for prefix in ("hw.gpu.", "hw.", "nvidia.gpu.", "system.", "flyball.workload."):
        if name.startswith(prefix):
            name = name.removeprefix(prefix)
            break
    values = [pair.partition("=")[2] for pair in attributes.rstrip("}").split(",") if "=" in pair]
    label = name.replace(".", " ").replace("_", " ")
    return f"{label} ({', '.join(values)})" if values else label


def shown_evidence(item: Evidence) -> str:
    """One number of the evidence: its name, value, and what was expected."""
    text = f"{short_name(item.name)} {quantity(item.value, item.unit)}"
    return text if item.expected is None else f"{text}, expected {quantity(item.expected, item.unit)}"
