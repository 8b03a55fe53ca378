"""Axis, line and tooltip styles of all charts."""

import math
from typing import Any

from flyball_streams.dashboard.preferences import Preferences

Options = dict[str, Any]
FONT = "Roboto, system-ui, sans-serif"
MS = 1_000_000  # nanoseconds in the milliseconds of the charts
SECONDS = "{HH}:{mm}:{ss}"
MINUTES = "{HH}:{mm}"
_NICE = (1.0, 1.2, 1.6, 2.0, 2.4, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)  # a quarter of each is round


def ceiling(value: float) -> float:
    """The next round number above; 1 if the value is 0."""
    if not math.isfinite(value) or value <= 0:
        return 1.0
    size = 10.0 ** math.floor(math.log10(value))
    return next(size * step for step in _NICE if size * step >= value * 0.999_999)


def whole_ceiling(value: float) -> float:
    """The next round even number above, for axes of counts."""
    return max(2.0, 2 * math.ceil(ceiling(value) / 2))


def base(prefs: Preferences) -> Options:
    """Options that all charts share."""
    return {"useUTC": prefs.utc, "animation": False, "textStyle": {"fontFamily": FONT}}


def tooltip(prefs: Preferences, **more: Any) -> Options:
    """A tooltip confined to the chart."""
    return {
        "backgroundColor": prefs.palette.raised,
        "borderColor": prefs.palette.line,
        "textStyle": {"color": prefs.palette.text, "fontSize": 12, "fontFamily": FONT},
        "padding": [8, 10],
        "confine": True,
        "transitionDuration": 0,
        **more,
    }


def label(prefs: Preferences, **more: Any) -> Options:
    """Small muted text."""
    return {"color": prefs.palette.muted, "fontSize": 11, "fontFamily": FONT, **more}


def time_axis(prefs: Preferences, form: str | Options, **more: Any) -> Options:
    """An axis of event time with labels of this form."""
    return {
        "type": "time",
        "axisLine": {"lineStyle": {"color": prefs.palette.line}},
        "axisTick": {"show": False},
        "axisLabel": label(prefs, hideOverlap=True, formatter=form, alignMinLabel="left", alignMaxLabel="right"),
        "splitLine": {"show": False},
        **more,
    }


def value_axis(prefs: Preferences, unit: str, top: float, *, low: float = 0.0, parts: int = 4, **more: Any) -> Options:
    """An axis from ``low`` to ``top`` in equal parts, with its unit above it and muted grid lines."""
    return {
        "type": "value",
        "name": unit,
        "nameGap": 7,
        "nameTextStyle": label(prefs, align="left", padding=[0, 0, 0, -4]),
        "axisLabel": label(prefs, **{":formatter": "flyball.axis"}),
        "splitLine": {"lineStyle": {"color": prefs.palette.line, "width": 1}},
        "min": low,
        "max": top,
        "interval": (top - low) / parts,
        **more,
    }


def line(name: str, data: list[list[float]], colour: str, **more: Any) -> Options:
    """A plain line; ``width`` and ``dash`` are those of its stroke."""
    stroke: Options = {"color": colour, "width": more.pop("width", 1.8)}
    dash = more.pop("dash", None)
    if dash is not None:
        stroke["type"] = dash
    return {
        "name": name, "type": "line", "symbol": "none", "animation": False, "data": data, "lineStyle": stroke,
        "itemStyle": {"color": colour}, "emphasis": {"disabled": True}, **more,
    }  # fmt: skip


def now_line(prefs: Preferences, at_ms: float | None, *, below: bool = False) -> Options:
    """A line at the current event time, labelled above or below the chart."""
    return {
        "silent": True,
        "symbol": "none",
        "animation": False,
        "lineStyle": {"color": prefs.palette.text, "width": 1, "type": "solid", "opacity": 0.55},
        "label": {
            "formatter": "now",
            "color": prefs.palette.text,
            "fontSize": 10,
            "fontFamily": FONT,
            "distance": 2,
            "position": "start" if below else "end",
        },
        "data": [] if at_ms is None else [{"xAxis": at_ms}],
    }


def line_chart(
    prefs: Preferences, form: str, value: Options, series: list[Options], *, marks: int, top: int = 24
) -> Options:
    """A small chart of lines over time, with about ``marks`` time marks; its tooltip lists the values of all."""
    return {
        **base(prefs),
        "grid": {"left": 4, "right": 28, "top": top, "bottom": 2, "containLabel": True},
        "tooltip": tooltip(prefs, trigger="axis", **{":formatter": "flyball.lineTip"}),
        "xAxis": time_axis(prefs, form, splitNumber=marks),
        "yAxis": value,
        "series": series,
    }
