"""Colours and axis styles that the charts share; the style sheet names the same colours."""

from typing import Any

Options = dict[str, Any]

TEXT = "#e8ebf2"
MUTED = "#98a2b8"
LINE = "#242c3b"
PANEL = "#121722"
BLUE = "#6ea8fe"
GREEN = "#4cc38a"
AMBER = "#f2b84b"
VIOLET = "#b99cff"
ZONES = (GREEN, "#5bc8e8", AMBER, VIOLET, "#f28fb1", "#c8d35a")
FONT = "Roboto, system-ui, sans-serif"

TOOLTIP: Options = {
    "backgroundColor": "#1a2130",
    "borderColor": "#323c50",
    "textStyle": {"color": TEXT, "fontSize": 12, "fontFamily": FONT},
    "padding": [8, 10],
    "confine": True,
    "transitionDuration": 0,
}


def time_axis(form: str | Options, **more: Any) -> Options:
    """An axis of UTC event time with labels of this form."""
    return {
        "type": "time",
        "axisLine": {"lineStyle": {"color": LINE}},
        "axisTick": {"show": False},
        "axisLabel": {"color": MUTED, "fontSize": 11, "hideOverlap": True, "formatter": form, "fontFamily": FONT},
        "splitLine": {"show": False},
        **more,
    }


def value_axis(**more: Any) -> Options:
    """An axis of values with quiet grid lines."""
    return {
        "type": "value",
        "axisLabel": {"color": MUTED, "fontSize": 11, "fontFamily": FONT},
        "splitLine": {"lineStyle": {"color": LINE, "width": 1}},
        "splitNumber": 4,
        **more,
    }


def now_line(at_ms: float | None) -> Options:
    """A mark at the present of the data."""
    return {
        "silent": True,
        "symbol": "none",
        "animation": False,
        "lineStyle": {"color": TEXT, "width": 1, "type": "solid", "opacity": 0.55},
        "label": {"formatter": "now", "color": TEXT, "fontSize": 10, "fontFamily": FONT, "distance": 2},
        "data": [] if at_ms is None else [{"xAxis": at_ms}],
    }
