"""Chart of a confirmation: each policy's cost in both engines, connected by a line."""

import math
from itertools import pairwise

from flyball_streams.backtest.events.confirm import Confirmation
from flyball_streams.backtest.report.plots import QUIET, new_figure, svg_of

APART = 0.045
"""Smallest distance of two labels, as a share of the height."""


def slopes(found: Confirmation, colour: dict[str, str]) -> str:
    """Cost at equal service relative to the baseline: fluid engine on the left, single requests on the right."""
    figure, axes = new_figure(8.6, 4.6)
    ratios = [(row, row.fluid.ratio, row.events.ratio) for row in found.rows]
    known = [(row, (left, right)) for row, left, right in ratios if left is not None and right is not None]
    for row, both in known:
        wide = 2.4 if row.ours else 1.5
        axes.plot((0, 1), both, color=colour[row.key], lw=wide, marker="o", ms=5, zorder=5 if row.ours else 3)
    axes.set_yscale("log")
    axes.minorticks_off()
    axes.set_xlim(-0.75, 1.75)
    axes.set_xticks((0, 1), ("fluid", "single requests"))
    axes.grid(axis="x", visible=False)
    values = [x for _, both in known for x in both]
    low, high = (min(values) / 1.04, max(values) * 1.04) if values else (0.5, 2.0)
    axes.set_ylim(low, high)
    ticks = [x for x in (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 6.0) if low <= x <= high]
    axes.set_yticks(ticks, [f"{100 * (x - 1):+.0f} %" for x in ticks])
    axes.set_ylabel("cost at equal service against the baseline", color=QUIET)
    for side, place, align in ((0, -0.04, "right"), (1, 1.04, "left")):
        at = _apart([both[side] for _, both in known], low, high)
        for (row, both), y in zip(known, at, strict=True):
            text = f"{row.title}  {100 * (both[side] - 1):+.1f} %"
            weight = "bold" if row.ours else "normal"
            axes.text(place, y, text, color=colour[row.key], ha=align, va="center", fontsize=9, fontweight=weight)
    return svg_of(figure)


def _apart(values: list[float], low: float, high: float) -> list[float]:
    """Heights of labels on a log axis, shifted so that no two overlap."""
    step = (high / low) ** APART
    order = sorted(range(len(values)), key=values.__getitem__)
    up, down = list(values), list(values)
    for before, after in pairwise(order):
        up[after] = max(up[after], up[before] * step)
    for after, before in pairwise(reversed(order)):
        down[before] = min(down[before], down[after] / step)
    return [math.sqrt(a * b) for a, b in zip(up, down, strict=True)]
