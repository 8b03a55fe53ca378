"""The page's charts as inline SVG."""

import io
import math
import re
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import matplotlib
import numpy as np
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.dates import AutoDateLocator, DateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from flyball_streams.backtest.events.confirm import Confirmation
from flyball_streams.backtest.safety import MOST_LOST, TITLES
from flyball_streams.backtest.study import Row, Study

INK, QUIET, GRID = "#1d2430", "#6b7486", "#e3e6ec"
THEME = {INK: "var(--ink)", QUIET: "var(--quiet)", GRID: "var(--grid)", "#000000": "var(--ink)"}
"""Maps a chart's colour to a variable of the page, so that text and lines follow its theme."""
OURS, BASE, ORACLE, DEMAND = "#1f6feb", "#d9822b", "#2e8b57", "#9aa3b2"
MORE_OURS = ("#4a63d3", "#7db3ff")
OTHERS = ("#8a6fc9", "#c25b7c", "#5aa7b5", "#a08a4f", "#7d8597", "#b0524a", "#5d7f4e")
YEAR_S = 365 * 86_400
MINUTES_FROM_S = 900.0
"""Below this span two marks of an axis would have the same minute."""
STYLE: Any = {"svg.fonttype": "none", "svg.hashsalt": "flyball", "font.family": "sans-serif", "font.size": 9.5}
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


def colours(study: Study) -> dict[str, str]:
    """One colour for each policy, the same in both charts."""
    rest, ours = iter(OTHERS * 2), iter((OURS, *MORE_OURS, *OTHERS))
    named = {study.base: BASE, "oracle": ORACLE}
    return {row.key: next(ours) if row.ours else named.get(row.key) or next(rest) for row in study.rows}


def pareto(study: Study) -> str:
    """Replica-hours against the share of late requests, on a log axis, with the objective as a line."""
    figure, axes = new_figure(8.6, 4.4)
    colour = colours(study)
    edge = max(1e-5, 0.02 * (1 - study.target))
    for row in study.rows:
        points = [(max(edge, 1 - share), hours) for share, hours in row.front]
        if not points:
            continue
        x, y = zip(*points, strict=True)
        wide = 2.4 if row.ours else 1.5
        axes.plot(
            x,
            y,
            color=colour[row.key],
            lw=wide,
            marker="o",
            ms=3.4 if row.ours else 2.2,
            label=row.title,
            zorder=5 if row.ours else 3,
        )
    axes.axvline(1 - study.target, color=INK, lw=1, ls=(0, (4, 3)))
    axes.set_xscale("log")
    axes.minorticks_off()
    axes.set_xlim(0.3, 0.8 * edge)
    axes.xaxis.set_major_formatter(FuncFormatter(_share))
    axes.annotate(
        f" objective {study.target:.4g}",
        (1 - study.target, 0.98),
        xycoords=("data", "axes fraction"),
        color=INK,
        fontsize=9.5,
        va="top",
    )
    best = [row.equal_hours for row in study.rows if row.equal_hours]
    if best:
        axes.set_ylim(min(0.8 * min(best), study.work_hours), 1.9 * float(np.median(best)))
    axes.axhline(study.work_hours, color=QUIET, lw=1, ls=":")
    axes.annotate(
        "total work: the hard bound",
        (0.01, study.work_hours),
        xycoords=("axes fraction", "data"),
        color=QUIET,
        fontsize=9,
        va="bottom",
    )
    axes.set_xlabel(f"requests served within {study.delay_s} s")
    axes.set_ylabel("billed replica-hours")
    axes.legend(frameon=False, fontsize=9, loc="upper left", bbox_to_anchor=(1.01, 1.0))
    return svg_of(figure)


def day(study: Study) -> str:
    """Replicas of our policy, the baseline and the oracle over the demand of one day."""
    figure, axes = new_figure(8.6, 3.6)
    colour = colours(study)
    titles: dict[str, Row] = {row.key: row for row in study.rows}
    count = len(study.series["demand"])
    at: list[Any] = [datetime.fromtimestamp(study.series_start_s + i * study.series_step_s, UTC) for i in range(count)]
    axes.fill_between(at, study.series["demand"], color=DEMAND, alpha=0.45, lw=0, label="demand (busy replicas)")
    for key, values in study.series.items():
        if key != "demand":
            wide = 2.0 if titles[key].ours else 1.3
            axes.step(at, values, where="post", color=colour[key], lw=wide, label=titles[key].title)
    axes.xaxis.set_major_locator(_untyped(AutoDateLocator)(maxticks=9))
    clock = "%H:%M" if count * study.series_step_s >= MINUTES_FROM_S else "%H:%M:%S"
    axes.xaxis.set_major_formatter(_untyped(DateFormatter)(clock, tz=UTC))
    axes.set_xlim(at[0], at[-1])
    axes.set_ylim(bottom=0)
    axes.set_xlabel(f"{at[0]:%Y-%m-%d}, UTC" if dated(study) else f"day {at[0].timetuple().tm_yday} of the trace")
    axes.set_ylabel("replicas")
    axes.legend(frameon=False, fontsize=9, loc="upper left", bbox_to_anchor=(1.01, 1.0))
    return svg_of(figure)


def faults(study: Study) -> str:
    """Points of attainment lost relative to reactive-only under each fault, with the limit as a line."""
    keys = [key for key in TITLES if any(o.fault == key for o in study.safety)]
    figure, axes = new_figure(8.6, 1.0 + 0.32 * len(keys))
    colour, titles = colours(study), {row.key: row.title for row in study.rows}
    shown = [row.key for row in study.rows if row.ours and any(o.policy == row.key for o in study.safety)]
    for i, key in enumerate(shown):
        found = [o for o in study.safety if o.policy == key]
        at = [keys.index(o.fault) + 0.18 * (i - (len(shown) - 1) / 2) for o in found]
        axes.scatter([o.lost_points for o in found], at, color=colour[key], s=34, label=titles[key], zorder=4)
    axes.axvline(0, color=QUIET, lw=1)
    axes.axvline(MOST_LOST, color=INK, lw=1, ls=(0, (4, 3)))
    axes.annotate(" most", (MOST_LOST, 1.0), xycoords=("data", "axes fraction"), color=INK, fontsize=9.5, va="bottom")
    axes.set_yticks(range(len(keys)), [TITLES[key] for key in keys])
    axes.set_ylim(len(keys) - 0.5, -0.5)
    axes.set_xlabel("points of attainment lost against reactive-only under the same fault (left of 0: better)")
    axes.legend(frameon=False, fontsize=9, loc="upper left", bbox_to_anchor=(1.01, 1.0))
    return svg_of(figure)


def dated(study: Study) -> bool:
    """Whether the times are calendar times; a trace without a calendar starts at second 0."""
    return study.series_start_s >= YEAR_S


def _untyped(kind: Any) -> Any:
    return kind


def _share(late: float, _: object) -> str:
    return f"{100 * (1 - late):.6g} %"


def new_figure(width: float, height: float) -> tuple[Figure, Any]:
    """Return a figure of a size in inches and its only axes, in the page's style."""
    with matplotlib.rc_context(STYLE):  # pyright: ignore[reportUnknownMemberType]
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasSVG(figure)
        axes: Any = figure.add_subplot()
    axes.grid(color=GRID, lw=0.8)
    axes.set_axisbelow(True)
    axes.minorticks_off()
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(GRID)
    axes.tick_params(colors=QUIET, length=0)
    axes.xaxis.label.set_color(QUIET)
    axes.yaxis.label.set_color(QUIET)
    return figure, axes


def svg_of(figure: Figure) -> str:
    """Return the SVG element alone, without the XML declaration; the page sets its size."""
    out = io.StringIO()
    with matplotlib.rc_context(STYLE):  # pyright: ignore[reportUnknownMemberType]
        figure.savefig(out, format="svg", metadata={"Date": None}, transparent=True)  # pyright: ignore[reportUnknownMemberType]
    text = out.getvalue()
    text = text[text.index("<svg") :]
    for fixed, themed in THEME.items():
        text = text.replace(fixed, themed)
    for size in ("width", "height"):
        text = re.sub(rf'(<svg[^>]*?) {size}="[^"]*"', r"\1", text, count=1)
    return text
