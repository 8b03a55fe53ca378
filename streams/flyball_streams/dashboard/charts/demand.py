"""Demand against its forecast: observed line, quantile fan, median, capacity, now."""

from typing import Any, NamedTuple

from flyball_contracts.records import Forecast
from flyball_streams.dashboard.charts.palette import (
    AMBER,
    BLUE,
    TEXT,
    TOOLTIP,
    Options,
    now_line,
    time_axis,
    value_axis,
)
from flyball_streams.dashboard.demand import Point, Workload

_MS = 1_000_000
LEGEND = (
    ("observed", TEXT, 1.0),
    ("forecast median", BLUE, 1.0),
    ("25\u201375 %", BLUE, 0.6),
    ("5\u201395 %", BLUE, 0.32),
    ("capacity ready", AMBER, 1.0),
)
SHOWN_PAST = 240


class DemandText(NamedTuple):
    """The numbers beside the chart."""

    unit: str
    observed: float | None
    ready: int | None
    replicas: int | None
    wanted: int | None
    arrived: float | None
    waiting: float | None


def empty_demand_options() -> Options:
    """The chart before anything is known; later updates have the same series."""
    return _options([], [], _no_fan(), None)


def demand_options(workload: Workload) -> tuple[Options, DemandText]:
    """Options of the chart of one workload and the numbers that belong to it."""
    points = workload.points()[-SHOWN_PAST:]
    unit, values = _quantity(points, workload)
    observed = [[p.end_ns / _MS, v] for p, v in zip(points, values, strict=True) if v is not None]
    capacity: list[list[float]] = []
    spec = workload.spec
    if spec is not None and spec.capacity_per_replica > 0 and unit == "work/s":
        capacity = [[p.end_ns / _MS, p.ready * spec.capacity_per_replica] for p in points]
    forecast = workload.forecast
    fan = _fan(forecast) if forecast is not None else _no_fan()
    if not observed and forecast is not None and forecast.observed is not None:
        observed = [[forecast.time_ns / _MS, forecast.observed]]
    now = points[-1].end_ns / _MS if points else (forecast.time_ns / _MS if forecast else None)
    last = points[-1] if points else None
    # Gateways report with other sources than replicas do: the last tick may lack them yet.
    door = next((p for p in reversed(points[-2:]) if p.arrived is not None or p.waiting is not None), None)
    wanted = workload.proposal.replicas if workload.proposal else None
    text = DemandText(
        unit or "work/s",
        observed[-1][1] if observed else None,
        last.ready if last else None,
        last.replicas if last else None,
        wanted,
        door.arrived if door else None,
        door.waiting if door else None,
    )
    return _options(observed, capacity, fan, now), text


def _quantity(points: list[Point], workload: Workload) -> tuple[str, list[float | None]]:
    """What the engine forecasts: work per second, or busy GPUs where the work or its capacity is not known.

    Of what has no replica only requests at gateways are known.
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


def _no_fan() -> list[list[list[float]]]:
    return [[], [], [], [], []]


def _fan(forecast: Forecast) -> list[list[list[float]]]:
    """Lower edge and width of the outer and inner band, and the median, from the present on."""
    order = sorted(range(len(forecast.levels)), key=lambda i: forecast.levels[i])
    if not order:
        return _no_fan()
    low, high = order[0], order[-1]
    inner_low, inner_high = (order[1], order[-2]) if len(order) >= 4 else (low, high)
    middle = min(order, key=lambda i: abs(forecast.levels[i] - 0.5))
    rows: list[tuple[float, tuple[float, ...]]] = []
    if forecast.observed is not None:  # the fan opens at the last observation
        rows.append((forecast.time_ns / _MS, tuple(forecast.observed for _ in forecast.levels)))
    for horizon_s, values in zip(forecast.horizon_s, forecast.quantiles, strict=False):
        if len(values) == len(forecast.levels):
            rows.append((forecast.time_ns / _MS + 1000 * horizon_s, values))
    fan = _no_fan()
    for at, values in rows:
        fan[0].append([at, values[low]])
        fan[1].append([at, max(0.0, values[high] - values[low])])
        fan[2].append([at, values[inner_low]])
        fan[3].append([at, max(0.0, values[inner_high] - values[inner_low])])
        fan[4].append([at, values[middle]])
    return fan


def _band(name: str, stack: str, data: list[list[float]], opacity: float) -> Options:
    return {
        "name": name,
        "type": "line",
        "stack": stack,
        "stackStrategy": "all",
        "symbol": "none",
        "silent": True,
        "animation": False,
        "lineStyle": {"opacity": 0},
        "areaStyle": {"color": BLUE, "opacity": opacity},
        "data": data,
    }


def _line(name: str, data: list[list[float]], **more: Any) -> Options:
    return {"name": name, "type": "line", "symbol": "none", "animation": False, "data": data, **more}


def _options(
    observed: list[list[float]],
    capacity: list[list[float]],
    fan: list[list[list[float]]],
    now_ms: float | None,
) -> Options:
    return {
        "useUTC": True,
        "animation": False,
        "grid": {"left": 8, "right": 14, "top": 18, "bottom": 4, "containLabel": True},
        "tooltip": {**TOOLTIP, "trigger": "axis", ":formatter": "flyball.demandTip"},
        "xAxis": time_axis("{HH}:{mm}:{ss}"),
        "yAxis": value_axis(min=0),
        "series": [
            _band("outer low", "outer", fan[0], 0),
            _band("5\u201395 %", "outer", fan[1], 0.20),
            _band("inner low", "inner", fan[2], 0),
            _band("25\u201375 %", "inner", fan[3], 0.34),
            _line("median", fan[4], lineStyle={"color": BLUE, "width": 2}, itemStyle={"color": BLUE}, z=4),
            _line(
                "capacity ready",
                capacity,
                step="end",
                lineStyle={"color": AMBER, "width": 1.5, "type": [5, 4]},
                itemStyle={"color": AMBER},
                z=3,
            ),
            _line(
                "observed",
                observed,
                lineStyle={"color": TEXT, "width": 1.8},
                itemStyle={"color": TEXT},
                z=5,
                markLine=now_line(now_ms),
            ),
        ],
    }
