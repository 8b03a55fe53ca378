"""Rows and ratios of a benchmark: medians with their spread, as a table and as JSON."""

import importlib.metadata
import platform
import sys
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import confluent_kafka
from rich.console import Console
from rich.table import Table

PACKAGES = ("numpy", "jax", "faust-streaming", "aiokafka", "confluent-kafka", "msgspec")


def wide_console(width: int = 120) -> Console:
    """A console as wide as the terminal, and ``width`` columns wide elsewhere."""
    return Console(width=None if sys.stdout.isatty() else width)


class Sample(NamedTuple):
    """One segment of one row; ``problem`` says why it does not count, empty when it does."""

    gpu_ticks: float
    cpu_s: float
    wall_s: float
    problem: str = ""


class Spread(NamedTuple):
    """Median, least and most over the repeats."""

    median: float
    least: float
    most: float

    def __str__(self) -> str:
        """Return the median with the range."""
        return f"{_short(self.median)} ({_short(self.least)} to {_short(self.most)})"


def spread(values: list[float]) -> Spread:
    """Median and range; values must not be empty."""
    return Spread(median(values), min(values), max(values))


class Row:
    """One contender: its samples, in the order of the repeats."""

    def __init__(self, key: str, title: str) -> None:
        self.key, self.title = key, title
        self.samples: list[Sample] = []

    @property
    def problem(self) -> str:
        """First reason why the row does not count."""
        if not self.samples:
            return "not measured"
        return next((s.problem for s in self.samples if s.problem), "")

    @property
    def per_core(self) -> list[float]:
        """GPU-ticks per second of process CPU time, by repeat."""
        return [s.gpu_ticks / s.cpu_s for s in self.samples]

    @property
    def per_wall_second(self) -> list[float]:
        """GPU-ticks per wall second, by repeat."""
        return [s.gpu_ticks / s.wall_s for s in self.samples]


def ratios(rows: list[Row], of: str) -> dict[str, list[float]]:
    """Per-core rate of row ``of`` over that of every other row, repeat by repeat."""
    chosen = next(row for row in rows if row.key == of)
    return {
        row.key: [a / b for a, b in zip(chosen.per_core, row.per_core, strict=True)]
        for row in rows
        if row is not chosen and not row.problem and not chosen.problem
    }


def as_json(rows: list[Row], of: str, about: dict[str, Any]) -> dict[str, Any]:
    """Everything that was measured, with its units."""
    return {
        **about,
        "machine": machine(),
        "unit": "GPU-ticks per second of process CPU time (per_core) and per wall second; one GPU-tick is 48 metrics",
        "rows": [
            {
                "key": row.key,
                "title": row.title,
                "valid": not row.problem,
                "problem": row.problem,
                "per_core": row.per_core,
                "per_wall_second": row.per_wall_second,
                "cpu_s": [s.cpu_s for s in row.samples],
                "wall_s": [s.wall_s for s in row.samples],
                "gpu_ticks": [s.gpu_ticks for s in row.samples],
            }
            for row in rows
        ],
        "ratios": {"of": of, "over": ratios(rows, of)},
    }


def show(console: Console, rows: list[Row], of: str, title: str) -> None:
    """Print the table; a row that lost or does not count stays in it."""
    over = ratios(rows, of)
    table = Table(title=title, title_justify="left")
    table.add_column("row")
    table.add_column("GPU-ticks per CPU second", justify="right")
    table.add_column("per wall second", justify="right")
    table.add_column(f"{of} is", justify="right")
    for row in rows:
        if row.problem:
            table.add_row(row.title, f"[red]does not count[/]: {row.problem}")
            continue
        ratio = f"{spread(over[row.key])} x" if row.key in over else ""
        table.add_row(row.title, str(spread(row.per_core)), str(spread(row.per_wall_second)), ratio)
    console.print(table)


def machine() -> dict[str, Any]:
    """Versions and processor: what the figures depend on."""
    model = next(
        (line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")),
        platform.processor(),
    )
    return {
        "cpu": model,
        "logical_cpus": sum(line.startswith("processor") for line in _lines("/proc/cpuinfo")) or None,
        "load_average_1m": float(next(iter(_lines("/proc/loadavg")), "nan").split()[0]),
        "system": f"{platform.system()} {platform.release()}",
        "versions": {
            "python": sys.version.split()[0],
            "librdkafka": confluent_kafka.libversion()[0],
            **{name: importlib.metadata.version(name) for name in PACKAGES},
        },
    }


def machine_line(about: dict[str, Any]) -> str:
    """What :func:`machine` found, on a line."""
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    return f"{about['cpu']}, {about['logical_cpus']} CPUs, load {about['load_average_1m']}; {versions}"


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []


def _short(value: float) -> str:
    """Three significant digits, with thousands separated."""
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.0f}" if abs(rounded) >= 100 else f"{rounded:g}"
