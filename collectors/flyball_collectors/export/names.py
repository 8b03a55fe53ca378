"""Prometheus names of OpenTelemetry metrics, by the rules of OpenTelemetry's compatibility specification."""

import re
from typing import NamedTuple

from flyball_contracts.metrics import Metric

_UNITS = {
    "By": "bytes",
    "s": "seconds",
    "J": "joules",
    "W": "watts",
    "Hz": "hertz",
    "Cel": "celsius",
}


class MetricFamily(NamedTuple):
    """Name without ``_total``, type, and the unit that the name ends with (empty: none)."""

    name: str
    type: str
    unit: str


def metric_family_of(metric: Metric) -> MetricFamily:
    """Dots become underscores, the unit is appended in full; a ratio is a gauge of unit ``1``."""
    name = label(metric.name)
    plain = re.sub(r"\{[^}]*\}", "", metric.unit)
    if plain == "1":
        unit = "ratio" if metric.instrument == "gauge" else ""
    elif plain.startswith("/"):
        unit = f"per_{_UNITS.get(plain[1:], plain[1:]).removesuffix('s')}"
    else:
        unit = _UNITS.get(plain, plain)
    if unit and not name.endswith(f"_{unit}"):
        name = f"{name}_{unit}"
    return MetricFamily(name, metric.instrument, unit)


def label(name: str) -> str:
    """``name`` with underscores for what Prometheus does not allow."""
    return re.sub(r"[^A-Za-z0-9_]+", "_", name)
