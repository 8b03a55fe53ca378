"""Part `unseen` of ``autoscaling.py``: policies on series that were not looked at when they were made.

Requests of a web site and tweets, of forty days each: tuned on the first twenty, frozen, measured on the others. The
cost of their requests is unknown, so all cost the same; the mean is scaled to twenty busy replicas. Two more series of
tweets are left out: members, memory and price of `shadow_selection` were chosen with them in view.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.scaling import rows
from bench.scaling.rows import ORACLE, change
from bench.series.nab import read_nab
from bench.series.rates import Rates
from bench.series.worldcup import read_worldcup
from rich.table import Table

from flyball_streams.backtest.demands.demand import DAY_S, Demand
from flyball_streams.backtest.sweep import Result

WORLDCUP, NAB = "worldcup98", "nab"
SEEN = {"Twitter_volume_AMZN", "Twitter_volume_CRM"}
DAYS, QUICK_DAYS = 40, 6
QUICK_SERIES = 1


def series(data: Path, *, quick: bool) -> list[Rates]:
    """All series, of one length; in a quick look some days of the first one."""
    tweets = [rates for rates in read_nab(data / NAB) if rates.name not in SEEN]
    found = [read_worldcup(data / WORLDCUP), *tweets]
    seconds = (QUICK_DAYS if quick else DAYS) * DAY_S
    return [rates.part(seconds) for rates in found[: QUICK_SERIES if quick else None]]


def demands(found: list[Rates]) -> Iterator[tuple[str, list[Demand]]]:
    """Demand of each series, drawn when it is requested: one seed, since the days of the series differ by far more."""
    return ((rates.name, [rates.demand(0)]) for rates in found)


def there(data: Path | None) -> bool:
    """Whether a folder holds these series."""
    return data is not None and (data / WORLDCUP).is_dir() and (data / NAB).is_dir()


def shown(results: list[Result], targets: tuple[float, ...], draws: int) -> dict[str, list[dict[str, Any]]]:
    """Rows of all policies, by target."""
    return {str(target): rows.summary(rows.contest(results, target, draws)) for target in targets}


def tables(summaries: dict[str, list[dict[str, Any]]]) -> Iterator[Table]:
    """One table for each target, and what each of our policies costs against the best baseline, by configuration."""
    for target, each in summaries.items():
        table = rows.summary_table(each, float(target))
        table.title = f"series nobody tuned on: {table.title}"
        yield table
        ours = [row for row in each if row["ours"] or row["policy"] == ORACLE]
        beside = Table(title=f"  beside the best tuned baseline, {float(target):.1%}", title_justify="left", box=None)
        for i, name in enumerate(("configuration", *(row["title"] for row in ours))):
            beside.add_column(name, justify="right" if i else "left")
        for line in each[0]["hours"]:
            changes = [row["against_best_baseline"].get(line, math.nan) for row in ours]
            beside.add_row(line, *(change(x) for x in changes))
        yield beside
