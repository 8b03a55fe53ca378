"""Benefit of Flyball: the same time and demand with and without it, side by side."""

from collections.abc import Mapping
from typing import NamedTuple

from rich.table import Table

from flyball_contracts.records import Account

J_PER_KWH = 3.6e6
G_PER_KG = 1000.0
NONE_DUE = "none due yet"


class _Row(NamedTuple):
    """One row: its unit, its format, and whether less is better."""

    name: str
    unit: str
    form: str
    less_is_better: bool = True


def in_time(account: Account) -> float | None:
    """Share of requests in time, among those that ended; ``None`` if none ended."""
    ended = account.requests - account.queued
    return account.in_time / ended if ended > 0 else None


def deadlines_kept(account: Account) -> tuple[int, int]:
    """Jobs that met their deadline, and jobs that ended or are past it."""
    ends = [w.in_time_end for w in account.workloads if w.in_time_end is not None]
    return sum(ends), len(ends)


ROWS = (
    _Row("requests in time", "%", ".2f", False),
    _Row("useful work", "GPU-h", ",.1f", False),
    _Row("GPU-hours held", "h", ",.1f"),
    _Row("cost", "USD", ",.2f"),
    _Row("energy", "kWh", ",.1f"),
    _Row("carbon", "kgCO2e", ",.1f"),
    _Row("work lost", "GPU-h", ",.2f"),
    _Row("cost of useful work", "USD/GPU-h", ",.3f"),
    _Row("energy of useful work", "kWh/GPU-h", ",.3f"),
    _Row("carbon of useful work", "kgCO2e/GPU-h", ",.4f"),
)


def values_of(account: Account) -> tuple[float | None, ...]:
    """Value of each row of :data:`ROWS`, in its unit; ``None`` if there is none yet."""
    share, useful = in_time(account), account.useful_gpu_h
    paid = account.cost_usd, account.energy_j / J_PER_KWH, account.carbon_g / G_PER_KG
    return (
        None if share is None else 100.0 * share,
        useful,
        account.gpu_h,
        *paid,
        account.lost_gpu_h,
        *(amount / useful if useful else None for amount in paid),
    )


def comparison(accounts: Mapping[str, Account]) -> Table | None:
    """Table of the actual account beside the baseline's; ``None`` where there is no actual account."""
    actual, baseline = accounts.get("actual"), accounts.get("baseline")
    if actual is None:
        return None
    hours = (actual.time_ns - actual.since_ns) / 3.6e12
    table = Table(
        title=f"{hours:.2f} h of event time, with and without Flyball",
        title_justify="left",
        box=None,
        header_style="bold",
        padding=(0, 2, 0, 0),
    )
    table.add_column("")
    for head in ("with", "without", "change"):
        table.add_column(head, justify="right")
    table.add_column("unit")
    without = (None,) * len(ROWS) if baseline is None else values_of(baseline)
    for row, ours, theirs in zip(ROWS, values_of(actual), without, strict=True):
        table.add_row(
            row.name, _formatted(ours, row.form), _formatted(theirs, row.form), _change(row, ours, theirs), row.unit
        )
    kept = [_kept(account) for account in (actual, baseline)]
    if any(text != NONE_DUE for text in kept):
        table.add_row("deadlines kept", *kept, "", "jobs")
    return table


def _formatted(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _kept(account: Account | None) -> str:
    kept, all_ = (0, 0) if account is None else deadlines_kept(account)
    return f"{kept} of {all_}" if all_ else NONE_DUE


def _change(row: _Row, ours: float | None, theirs: float | None) -> str:
    if ours is None or theirs is None:
        return ""
    if row.unit == "%":
        text = f"{ours - theirs:+.2f} points"
    elif theirs > 0:
        text = f"{100.0 * (ours / theirs - 1.0):+.1f} %"
    else:
        text = format(ours - theirs, "+" + row.form)
    better = ours < theirs if row.less_is_better else ours > theirs
    return text if ours == theirs else f"[{'green' if better else 'red'}]{text}[/]"
