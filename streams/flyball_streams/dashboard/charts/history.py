"""Measurements of one GPU or node over time, one chart for each unit."""

import numpy as np
from numpy.typing import NDArray

from flyball_streams.dashboard.charts.palette import MS, SECONDS, Options, ceiling, line, line_chart, value_axis
from flyball_streams.dashboard.preferences import Preferences

Lines = dict[str, tuple[NDArray[np.int64], NDArray[np.float32]]]


def history_options(lines: Lines, unit: str, prefs: Preferences, *, top: float | None = None) -> Options:
    """Options of a chart with these lines. ``top`` ends the axis; by default the observed maximum does."""
    data = {
        name: [[int(t) / MS, round(float(v), 3)] for t, v in zip(times, values, strict=True) if np.isfinite(v)]
        for name, (times, values) in lines.items()
    }
    highest = max((point[1] for points in data.values() for point in points), default=0.0)
    colours = (prefs.palette.blue, prefs.palette.violet, prefs.palette.green, prefs.palette.amber)
    series = [
        line(name, points, colours[place % len(colours)], width=1.6)
        for place, (name, points) in enumerate(data.items())
    ]
    value = value_axis(prefs, unit, top if top is not None else ceiling(1.1 * highest), parts=2)
    return line_chart(prefs, SECONDS, value, series, marks=4, top=26)
