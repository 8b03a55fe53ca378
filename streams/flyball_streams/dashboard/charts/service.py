"""Share of requests in time, queue and latency over time, compared with the baseline without Flyball."""

from collections.abc import Sequence
from typing import Literal

from flyball_streams.dashboard.charts.palette import (
    MINUTES,
    MS,
    SECONDS,
    Options,
    ceiling,
    line,
    line_chart,
    value_axis,
)
from flyball_streams.dashboard.preferences import Preferences
from flyball_streams.dashboard.state.accounts import Moment

Quantity = Literal["share", "queued", "delay_s"]
UNITS: dict[Quantity, str] = {"share": "%", "queued": "requests", "delay_s": "s"}
ACTUAL, BASELINE = "with Flyball", "without Flyball"
_SHORT_NS = 1_200 * 10**9


def service_options(
    quantity: Quantity, actual: Sequence[Moment], baseline: Sequence[Moment], prefs: Preferences
) -> Options:
    """Options of the chart of one quantity; the axis ends at the observed maximum."""
    ours, other = _points(actual, quantity), _points(baseline, quantity)
    values = [point[1] for point in (*ours, *other)]
    top, low = 100.0, 0.0
    if quantity == "share":
        least = min(values, default=0.0)
        low = next(step for step in (99.0, 98.0, 95.0, 90.0, 80.0, 50.0, 0.0) if step <= max(0.0, least))
    else:
        top = ceiling(1.05 * max(values, default=0.0))
    name = ACTUAL if baseline else "observed"
    times = [moment.time_ns for moment in actual]
    brief = not times or times[-1] - times[0] < _SHORT_NS
    series = [
        line(BASELINE, other, prefs.palette.amber, dash=[4, 3], width=1.5),
        line(name, ours, prefs.palette.green, areaStyle={"color": prefs.palette.green, "opacity": 0.1}),
    ]
    value = value_axis(prefs, UNITS[quantity], top, low=low, parts=2)
    return line_chart(prefs, SECONDS if brief else MINUTES, value, series, marks=3)


def _points(moments: Sequence[Moment], quantity: Quantity) -> list[list[float]]:
    factor = 100.0 if quantity == "share" else 1.0
    points: list[list[float]] = []
    for moment in moments:
        value: float | None = getattr(moment, quantity)
        if value is not None:
            points.append([moment.time_ns / MS, factor * value])
    return points
