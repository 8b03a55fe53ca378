"""Demand with its forecast, replicas below it, and decisions as marks on both."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from flyball_contracts.records import Forecast
from flyball_streams.dashboard.charts.marks import DecisionMark, before_after, flag_series, flags, stems, waits
from flyball_streams.dashboard.charts.palette import (
    MS,
    SECONDS,
    Options,
    base,
    ceiling,
    line,
    now_line,
    time_axis,
    tooltip,
    value_axis,
    whole_ceiling,
)
from flyball_streams.dashboard.preferences import Preferences
from flyball_streams.dashboard.state.demand import Point, Workload

SHOWN_PAST = 240
LEFT, RIGHT, LOWER = 52, 14, 62  # pixels; both charts have their time axis at the same place


class DemandText(NamedTuple):
    """The numbers beside the chart, those of now; ``None`` where they are not known or the workload has gone."""

    unit: str
    observed: float | None
    ready: int | None
    replicas: int | None
    wanted: int | None
    arrived: float | None
    waiting: float | None
    latency_s: float | None


class _Data(NamedTuple):
    unit: str
    observed: list[list[float]]
    capacity: list[list[float]]
    fan: list[list[list[float]]]
    ready: list[list[float]]
    requested: list[list[float]]
    now_ms: float | None


_NOTHING = _Data("work/s", [], [], [[], [], [], [], []], [], [], None)


def empty_demand_options(prefs: Preferences) -> Options:
    """The chart without data; later updates have the same series."""
    return _options(_NOTHING, [], prefs, "")


def window(workload: Workload, *, whole: bool = False) -> list[Point]:
    """The shown points: the last minutes, or the whole history."""
    return workload.history() if whole else workload.points()[-SHOWN_PAST:]


def demand_options(
    workload: Workload,
    prefs: Preferences,
    marks: Sequence[DecisionMark] = (),
    focus: str = "",
    shown: Sequence[Point] | None = None,
) -> tuple[Options, DemandText]:
    """Options of the chart of one workload, and its numbers.

    ``focus`` is a decision to highlight. ``shown`` are the points of :func:`window`, by default the last minutes.
    """
    points = window(workload) if shown is None else shown
    unit, values = _quantity(points, workload)
    observed = [[p.end_ns / MS, v] for p, v in zip(points, values, strict=True) if v is not None]
    capacity: list[list[float]] = []
    spec = workload.spec
    if spec is not None and spec.capacity_per_replica > 0 and unit == "work/s":
        capacity = [[p.end_ns / MS, p.ready * spec.capacity_per_replica] for p in points]
    forecast = workload.forecast
    fan = _fan(forecast) if forecast is not None else _NOTHING.fan
    if not observed and forecast is not None and forecast.observed is not None:
        observed = [[forecast.time_ns / MS, forecast.observed]]
    now = points[-1].end_ns / MS if points else (forecast.time_ns / MS if forecast else None)
    last = points[-1] if points else None
    # Gateways do not report in every tick.
    gateway = next((p for p in reversed(points[-2:]) if p.arrived is not None or p.waiting is not None), None)
    if workload.is_gone:
        last = gateway = None
    text = DemandText(
        unit or "work/s",
        observed[-1][1] if observed and not workload.is_gone else None,
        last.ready if last else None,
        last.replicas if last else None,
        workload.proposal.replicas if workload.proposal else None,
        gateway.arrived if gateway else None,
        gateway.waiting if gateway else None,
        next((p.latency_s for p in reversed(points[-3:]) if p.latency_s is not None), None) if last else None,
    )
    ready = [[p.end_ns / MS, float(p.ready)] for p in points]
    requested = [[p.end_ns / MS, float(p.replicas)] for p in points]
    data = _Data(text.unit, observed, capacity, fan, ready, requested, now)
    return _options(data, list(marks), prefs, focus), text


def _quantity(points: Sequence[Point], workload: Workload) -> tuple[str, list[float | None]]:
    """The quantity that the engine forecasts: work per second, or busy GPUs if work or capacity is unknown.

    For a workload without replicas only requests at gateways are known.
    """
    work = [p.work for p in points]
    busy = [p.busy for p in points]
    forecasts_busy = workload.forecast and not (workload.spec and workload.spec.capacity_per_replica > 0)
    if any(value is not None for value in work) and not forecasts_busy:
        return "work/s", work
    if any(value is not None for value in busy):
        return "busy GPUs", busy
    arrived = [p.arrived for p in points]
    if any(value is not None for value in arrived):
        return "requests/s", arrived
    return "", [None] * len(points)


def _fan(forecast: Forecast) -> list[list[list[float]]]:
    """Lower edge and width of the outer and inner band, and the median, from now on."""
    order = sorted(range(len(forecast.levels)), key=lambda i: forecast.levels[i])
    if not order:
        return _NOTHING.fan
    low, high = order[0], order[-1]
    inner_low, inner_high = (order[1], order[-2]) if len(order) >= 4 else (low, high)
    middle = min(order, key=lambda i: abs(forecast.levels[i] - 0.5))
    rows: list[tuple[float, tuple[float, ...]]] = []
    if forecast.observed is not None:  # the fan opens at the last observation
        rows.append((forecast.time_ns / MS, tuple(forecast.observed for _ in forecast.levels)))
    for horizon_s, values in zip(forecast.horizon_s, forecast.quantiles, strict=False):
        if len(values) == len(forecast.levels):
            rows.append((forecast.time_ns / MS + 1000 * horizon_s, values))
    fan: list[list[list[float]]] = [[], [], [], [], []]
    for at, values in rows:
        fan[0].append([at, values[low]])
        fan[1].append([at, max(0.0, values[high] - values[low])])
        fan[2].append([at, values[inner_low]])
        fan[3].append([at, max(0.0, values[inner_high] - values[inner_low])])
        fan[4].append([at, values[middle]])
    return fan


def _top(data: _Data) -> float:
    """Upper end of the axis: the highest observed value and median forecast, and other values not far above."""
    highest = max((value for _, value in (*data.observed, *data.fan[4])), default=0.0)
    ready = max((value for _, value in data.capacity), default=0.0)
    upper = max((low[1] + width[1] for low, width in zip(data.fan[0], data.fan[1], strict=True)), default=0.0)
    if highest <= 0:
        return ceiling(1.15 * max(ready, upper))
    near = [highest, *(value for value in (ready, upper) if value <= 2 * highest)]
    return ceiling(1.15 * max(near))


def _band(name: str, stack: str, data: list[list[float]], colour: str, opacity: float) -> Options:
    return {
        "name": name, "type": "line", "stack": stack, "stackStrategy": "all", "symbol": "none", "silent": True,
        "animation": False, "lineStyle": {"opacity": 0}, "areaStyle": {"color": colour, "opacity": opacity},
        "data": data,
    }  # fmt: skip


def _options(data: _Data, marks: list[DecisionMark], prefs: Preferences, focus: str) -> Options:
    colours = prefs.palette
    top = _top(data)
    counts = [value for _, value in (*data.ready, *data.requested)]
    counts += [float(n) for mark in marks for n in (mark.before, mark.wanted, mark.after) if n is not None]
    times = [at for at, _ in (*data.observed, *data.ready, *data.fan[4])]
    bounds: dict[str, Any] = {"min": min(times), "max": max(times)} if times else {}
    here = {"xAxisIndex": 1, "yAxisIndex": 1}
    return {
        **base(prefs),
        "grid": [
            {"left": LEFT, "right": RIGHT, "top": 42, "bottom": LOWER + 50},
            {"left": LEFT, "right": RIGHT, "height": LOWER, "bottom": 20},
        ],
        "axisPointer": {"link": [{"xAxisIndex": "all"}]},
        "tooltip": tooltip(prefs, trigger="axis", **{":formatter": "flyball.demandTip"}),
        "xAxis": [
            time_axis(prefs, SECONDS, gridIndex=0, axisLabel={"show": False}, **bounds),
            time_axis(prefs, SECONDS, gridIndex=1, **bounds),
        ],
        "yAxis": [
            value_axis(prefs, data.unit, top, gridIndex=0, nameGap=14),
            value_axis(prefs, "replicas", whole_ceiling(max(counts, default=0.0)), parts=2, gridIndex=1),
        ],
        "series": [
            _band("outer low", "outer", data.fan[0], colours.blue, 0),
            _band("5\u201395 %", "outer", data.fan[1], colours.blue, 0.20),
            _band("inner low", "inner", data.fan[2], colours.blue, 0),
            _band("25\u201375 %", "inner", data.fan[3], colours.blue, 0.34),
            line("median", data.fan[4], colours.blue, width=2, z=4),
            line("capacity ready", data.capacity, colours.amber, step="end", width=1.5, dash=[5, 4], z=3),
            line(
                "observed", data.observed, colours.text, z=5,
                markLine=now_line(prefs, data.now_ms if data.fan[4] else None, below=True),
            ),
            flag_series(
                flags(marks, top, prefs, focus),
                markLine=stems(marks, prefs),
                markArea=waits(marks, prefs),
            ),
            line("running", data.requested, colours.muted, step="end", width=1.2, dash=[2, 2], **here),
            line("ready", data.ready, colours.green, step="end", width=1.8, **here),
            {
                "name": "before and after", "type": "scatter", "animation": False, "z": 8, "cursor": "pointer",
                "data": before_after(marks, prefs), "markLine": stems(marks, prefs), "markArea": waits(marks, prefs),
                "tooltip": {"trigger": "item", ":formatter": "flyball.flagTip"}, **here,
            },
        ],
    }  # fmt: skip


def legend(prefs: Preferences) -> list[tuple[str, str, float]]:
    """Name, colour and opacity of what the chart shows."""
    colours = prefs.palette
    return [
        ("observed", colours.text, 1.0),
        ("forecast median", colours.blue, 1.0),
        ("25\u201375 %", colours.blue, 0.6),
        ("5\u201395 %", colours.blue, 0.32),
        ("capacity ready", colours.amber, 1.0),
        ("replicas ready", colours.green, 1.0),
    ]
