"""What a node measures, as tables for a terminal."""

from collections.abc import Sequence
from math import floor, isnan, log10

from rich.console import Group
from rich.table import Table

from flyball_collectors.base import Reading
from flyball_contracts.metrics import Metric, layout_of
from flyball_contracts.records import Inventory

_COLUMNS = 4  # rows of a frame side by side; more of them go below
_PREFIXES = {-3: "n", -2: "u", -1: "m", 0: "", 1: "k", 2: "M", 3: "G", 4: "T", 5: "P"}
_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi")


def render(readings: Sequence[Reading], inventory: Inventory) -> Group:
    """One table for each kind of frame (several for many GPUs): a line for each metric that has a value."""
    tables: list[Table] = []
    for reading in readings:
        layout = layout_of(reading.schema)
        names = _row_names(reading, inventory)
        for first in range(0, len(names), _COLUMNS):
            shown = slice(first, first + _COLUMNS)
            table = Table("metric", title=f"{inventory.node}: {layout.name}", title_justify="left")
            for name in names[shown]:
                table.add_column(name, justify="right", no_wrap=True)
            for metric, column in zip(layout.metrics, reading.values.T, strict=True):
                cells = [quantity(float(value), metric) for value in column[shown]]
                if any(cells):
                    table.add_row(metric.key, *cells)
            tables.append(table)
    return Group(*tables)


def quantity(value: float, metric: Metric) -> str:
    """A value with its unit, in four significant digits; empty for NaN, ``+`` before the increase of a counter."""
    if isnan(value):
        return ""
    sign = "+" if metric.instrument == "counter" else ""
    if metric.unit == "By":
        power = min(max(int(log10(abs(value)) / log10(1024)), 0), len(_BINARY) - 1) if value else 0
        return f"{sign}{value / 1024**power:.4g} {_BINARY[power]}B"
    if metric.unit in ("W", "J", "Hz", "s"):
        plain = not value or (metric.unit == "s" and abs(value) >= 1)
        power = 0 if plain else min(max(floor(log10(abs(value)) / 3), -3), 5)
        return f"{sign}{value / 1000**power:.4g} {_PREFIXES[power]}{metric.unit}"
    unit = {"1": "", "Cel": " °C"}.get(metric.unit, f" {metric.unit.strip('{}')}" if metric.unit[0] == "{" else "")
    return f"{sign}{value:.4g}{unit}"


def _row_names(reading: Reading, inventory: Inventory) -> list[str]:
    if layout_of(reading.schema).rows == "device":
        return [f"{device.index}: {device.model}" for device in inventory.devices]
    return ["value"] * len(reading.values)
