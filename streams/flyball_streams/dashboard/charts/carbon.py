"""Carbon intensity of each zone, and below it the time slots in which each plan runs its job."""

from typing import Any, NamedTuple

from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import Plan, Signal
from flyball_streams.dashboard.charts.palette import (
    MS,
    Options,
    base,
    ceiling,
    label,
    now_line,
    time_axis,
    tooltip,
    value_axis,
)
from flyball_streams.dashboard.preferences import DARK, Preferences
from flyball_streams.dashboard.state.fleet import Curve, FleetView

_HOUR_NS = 3_600 * NS_PER_S
PAST_NS, AHEAD_NS = 3 * _HOUR_NS, 30 * _HOUR_NS
_LABELS: Options = {"day": "{d} {MMM}", "hour": "{HH}:{mm}", "minute": "{HH}:{mm}", "none": "{HH}:{mm}"}
MAX_PLANS = 5
MAX_ZONES = len(DARK.zones)


class PlanText(NamedTuple):
    """Numbers of one planned job; it still runs for ``runs_s``, from ``next_ns`` on."""

    subject: str
    zone: str
    colour: str
    saving: float
    runs_s: float
    next_ns: int | None
    deadline_ns: int
    feasible: bool
    price_saving: float = 0.0


def carbon_now_ns(view: FleetView, now: dict[str, int]) -> int | None:
    """Event time to mark: the newest of the cells with plans or, without plans, of the cells in zones with a curve."""
    cells = {plan.cell for plan in view.plans.values()}
    if not cells:
        zones = {curve.zone for curve in view.curves.values()}
        cells = {n.inventory.cell for n in view.nodes.values() if n.inventory and n.inventory.zone in zones}
    times = [time for time in (now.get(cell) for cell in cells) if time]
    return max(times) if times else None


def carbon_options(view: FleetView, times: dict[str, int], prefs: Preferences) -> tuple[Options, list[PlanText]]:
    """Options of the chart, and the plans as text, the nearest deadline first."""
    now = carbon_now_ns(view, times)
    curves = sorted(view.curves.values(), key=lambda curve: curve.zone)[:MAX_ZONES]
    colours = {curve.zone: prefs.palette.zones[i] for i, curve in enumerate(curves)}
    shown = [p for p in view.plans.values() if now is None or p.deadline_ns > now or any(p.run)]
    plans = sorted(shown, key=lambda p: (p.deadline_ns, p.subject))[:MAX_PLANS]
    window = _window(now, curves, plans)
    lines = [(curve.zone, _points(curve, window)) for curve in curves]
    texts = [_plan_text(plan, colours.get(plan.zone, prefs.palette.muted), now) for plan in plans]
    return _options(lines, colours, plans, now, window, prefs), texts


def _window(now: int | None, curves: list[Curve], plans: list[Plan]) -> tuple[int, int]:
    if now is None:
        signals = [c.forecast or c.actual[-1] for c in curves if c.forecast or c.actual]
        now = min((s.start_ns for s in signals), default=0)
    signal_end = max((c.forecast.end_ns for c in curves if c.forecast), default=now)
    plan_end = max((p.start_ns + round(len(p.run) * p.step_s * NS_PER_S) for p in plans), default=now)
    return now - PAST_NS, min(max(signal_end, plan_end, now + _HOUR_NS), now + AHEAD_NS)


def _points(curve: Curve, window: tuple[int, int]) -> list[list[float]]:
    """Actual values, then the forecast from where they end; a step's start is its time."""
    values: dict[int, float] = {}
    signals: list[Signal] = [curve.forecast] if curve.forecast else []
    for signal in (*signals, *curve.actual):
        step = round(signal.step_s * NS_PER_S)
        first = max(0, (window[0] - signal.start_ns) // step)
        last = min(len(signal.p50), -(-(window[1] - signal.start_ns) // step))
        for i in range(first, last):
            values[signal.start_ns + i * step] = signal.p50[i]
        if last == len(signal.p50) and last > first:  # the last slot holds until its end
            values.setdefault(signal.start_ns + last * step, signal.p50[-1])
    return [[at / MS, value] for at, value in sorted(values.items())]


def _plan_text(plan: Plan, colour: str, now: int | None) -> PlanText:
    step = round(plan.step_s * NS_PER_S)
    starts = [plan.start_ns + i * step for i, run in enumerate(plan.run) if run]
    coming = [start for start in starts if now is None or start + step > now]
    return PlanText(
        plan.subject, plan.zone, colour, plan.saving, len(coming) * plan.step_s,
        coming[0] if coming else None, plan.deadline_ns, plan.feasible, plan.price_saving,
    )  # fmt: skip


def running_spans(plan: Plan) -> list[tuple[int, int]]:
    """Start and end of each continuous run of slots."""
    step = round(plan.step_s * NS_PER_S)
    spans: list[tuple[int, int]] = []
    for i, run in enumerate(plan.run):
        start = plan.start_ns + i * step
        if run and spans and spans[-1][1] == start:
            spans[-1] = (spans[-1][0], start + step)
        elif run:
            spans.append((start, start + step))
    return spans


def _options(
    lines: list[tuple[str, list[list[float]]]],
    colours: dict[str, str],
    plans: list[Plan],
    now: int | None,
    window: tuple[int, int],
    prefs: Preferences,
) -> Options:
    muted = prefs.palette.muted
    bounds = {"min": window[0] / MS, "max": window[1] / MS, "minInterval": 6 * _HOUR_NS / MS}
    highest = max((value for _, points in lines for _, value in points), default=0.0)
    lanes = max(1, len(plans))
    lane_height = 16 * lanes
    series = [_zone(zone, points, colours[zone]) for zone, points in lines]
    series += [_zone("", [], muted) for _ in range(MAX_ZONES - len(series))]  # a constant number: no rebuild
    series[0]["markLine"] = now_line(prefs, None if now is None else now / MS)
    series[0]["markArea"] = {
        "silent": True,
        "animation": False,
        "data": [
            [{"xAxis": start / MS, "itemStyle": {"color": colours.get(plan.zone, muted), "opacity": 0.09}},
             {"xAxis": end / MS}]
            for plan in plans
            for start, end in running_spans(plan)
        ],
    }  # fmt: skip
    bars: list[dict[str, Any]] = [
        {"value": [row, start / MS, end / MS], "itemStyle": {"color": colours.get(plan.zone, muted)}}
        for row, plan in enumerate(plans)
        for start, end in running_spans(plan)
    ]
    left, right = 46, 14
    return {
        **base(prefs),
        "grid": [
            {"left": left, "right": right, "top": 64, "bottom": lane_height + 40},
            {"left": left, "right": right, "height": lane_height, "bottom": 8},
        ],
        "tooltip": tooltip(prefs, trigger="axis", **{":formatter": "flyball.carbonTip"}),
        "legend": {
            "type": "scroll",
            "top": 0,
            "left": 0,
            "pageTextStyle": {"color": muted},
            "itemWidth": 14,
            "itemHeight": 8,
            "icon": "roundRect",
            "textStyle": label(prefs),
            "data": [zone for zone, _ in lines],
            "selectedMode": False,
        },
        "xAxis": [
            time_axis(prefs, _LABELS, gridIndex=0, **bounds),
            time_axis(prefs, _LABELS, gridIndex=1, show=False, **bounds),
        ],
        "yAxis": [
            value_axis(prefs, "gCO\u2082e/kWh", ceiling(1.05 * highest), gridIndex=0, nameGap=18),
            {
                "type": "category",
                "gridIndex": 1,
                "inverse": True,
                "data": [str(i + 1) for i in range(len(plans))],
                "axisLine": {"show": False},
                "axisTick": {"show": False},
                "axisLabel": label(prefs),
                "splitLine": {"show": True, "lineStyle": {"color": prefs.palette.line}},
            },
        ],
        "series": [
            *series,
            {
                "type": "custom",
                "name": "planned work",
                "xAxisIndex": 1,
                "yAxisIndex": 1,
                "silent": True,
                "animation": False,
                ":renderItem": "flyball.renderSlot",
                "encode": {"x": [1, 2], "y": 0},
                "data": bars,
                "markLine": {**now_line(prefs, None if now is None else now / MS), "label": {"show": False}},
            },
        ],
    }


def _zone(zone: str, points: list[list[float]], colour: str) -> Options:
    fade = {
        "type": "linear", "x": 0, "y": 0, "x2": 0, "y2": 1,
        "colorStops": [{"offset": 0, "color": f"{colour}38"}, {"offset": 1, "color": f"{colour}00"}],
    }  # fmt: skip
    return {
        "name": zone,
        "type": "line",
        "step": "end",
        "symbol": "none",
        "animation": False,
        "lineStyle": {"color": colour, "width": 2},
        "itemStyle": {"color": colour},
        "areaStyle": {"color": fade},
        "data": points,
        "emphasis": {"disabled": True},
    }
