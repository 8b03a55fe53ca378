"""Part of ``autoscaling.py``: whether single requests rank the policies as the fluid engine does."""

import math
from typing import Any

import msgspec
from rich.console import Group
from rich.table import Table

from flyball_streams.backtest.demands.demand import DAY_S
from flyball_streams.backtest.events import text
from flyball_streams.backtest.events.confirm import Confirmation, confirm, days_of
from flyball_streams.backtest.events.requests import Source
from flyball_streams.backtest.policies.prepared import PreparedDemand
from flyball_streams.backtest.run import Scenario
from flyball_streams.backtest.sweep import Result

BASE = "hpa"
TARGET = 0.99
DAYS = 1
QUICK_S = 7200


def confirmed(
    shared: PreparedDemand, found: list[Result], source: Source, thin: int, *, quick: bool
) -> dict[str, Confirmation]:
    """Both engines on one trace with its first seed, by configuration; `quick` looks at two hours instead of a day."""
    end_s = len(shared.demand.work)
    middle_s = found[0].block_sums.shape[2] // 2 * DAY_S
    days = days_of(middle_s, end_s, 3600, DAYS)
    windows = [(days[0][0], days[0][0] + QUICK_S)] if quick else days
    confirmed_by: dict[str, Confirmation] = {}
    for line in dict.fromkeys(r.configuration for r in found):
        results = {r.policy_group.key: r for r in found if r.configuration == line}
        families = [r.policy_group for r in results.values()]
        world = Scenario(line.cold_start_s, (line.delay_s,))
        confirmed_by[str(line)] = confirm(shared, source, families, results, BASE, TARGET, world, windows, thin=thin)
    return confirmed_by


def rows(confirmed_by: dict[str, Confirmation]) -> dict[str, Any]:
    """All of it for JSON, with the verdicts in words."""
    return {
        line: {**msgspec.to_builtins(found), "verdict": text.verdict(found), "swaps": text.swaps(found)}
        for line, found in confirmed_by.items()
    }


def table(confirmed_by: dict[str, Confirmation]) -> Group:
    """Each policy's change against tuned HPA in both engines: geometric mean over the configurations both reached."""
    shown = Table(
        title=f"single requests, at {TARGET:.0%}: GPU-hours against tuned HPA", title_justify="left", box=None
    )
    for name in ("policy", "fluid", "single requests", "both reached", "frozen: in time, fluid", "single"):
        shown.add_column(name, justify="left" if name == "policy" else "right")
    titles = {row.key: (row.title, row.ours) for found in confirmed_by.values() for row in found.rows}
    for key, (title, ours) in titles.items():
        each = [row for found in confirmed_by.values() for row in found.rows if row.key == key]
        pairs = [(r.fluid.ratio, r.events.ratio) for r in each]
        known = [(a, b) for a, b in pairs if a is not None and b is not None]
        fluid, events = (_mean([pair[i] for pair in known]) for i in (0, 1))
        served = (sum(r.fluid.attainment for r in each) / len(each), sum(r.events.attainment for r in each) / len(each))
        shown.add_row(
            title,
            fluid,
            events,
            f"{len(known)}/{len(each)}",
            *(f"{100 * share:.2f} %" for share in served),
            style="bold" if ours else None,
        )
    return Group(shown, *(f"  {line}: {text.verdict(found)}" for line, found in confirmed_by.items()))


def _mean(ratios: list[float]) -> str:
    if not ratios:
        return "-"
    return f"{100 * (math.exp(sum(math.log(x) for x in ratios) / len(ratios)) - 1):+.1f} %"
