"""Capacity of one replica of each service by each method of estimation, and its cold start."""

from typing import NamedTuple

from nicegui.element import Element
from nicegui.elements.mixins.text_element import TextElement

from flyball_contracts.records import Capacity, Method
from flyball_streams.dashboard.links import workload_link
from flyball_streams.dashboard.panels.elements import anchor, box, describe, head, panel, readdress, show, text
from flyball_streams.dashboard.state.fleet import FleetView
from flyball_streams.dashboard.text import UNKNOWN, number, percent, span

SHOWN = 8
METHODS = ("spec", "static", "historic", "online", "hybrid")
_ABOUT = {
    "spec": "what its owner says",
    "static": "what its architecture lets a GPU do",
    "historic": "what it served over the last windows",
    "online": "what it served when it was at its limit",
    "hybrid": "the others by what each was worth",
}


class _Entry(NamedTuple):
    """A number with its error, and its weight in the hybrid estimate."""

    box: Element
    value: TextElement
    error: TextElement
    fill: Element


class _Row(NamedTuple):
    line: Element
    who: TextElement
    used: TextElement
    source: TextElement
    methods: dict[str, _Entry]
    start: TextElement
    starts: TextElement


class CapacityPanel:
    """A fixed number of rows whose texts change; services that were saturated most often come first."""

    def __init__(self, workload: str = "") -> None:
        self._workload = workload
        with panel("capacity", "Capacity of one replica"):
            with head("Capacity of one replica"):
                text("work/s within its objective; the bar is a method's weight", "sub")
                box("grow")
                self._sub = text(classes="sub")
            self._empty = text("Awaiting capacities on flyball.insights.v1; a service has to work for that", "empty")
            self._body = box("rows")
            with self._body:
                with box("row-cap titles"):
                    for title in ("", "sized by", *METHODS, "cold start P90"):
                        entry = text(title)
                        if title in _ABOUT:
                            describe(entry, "title", _ABOUT[title])
                self._rows = [_row() for _ in range(SHOWN)]

    def update(self, view: FleetView) -> None:
        """Patch the rows."""
        found = [workload.capacity for workload in view.workloads.values() if workload.capacity is not None]
        found = [capacity for capacity in found if self._workload in ("", capacity.subject)]
        known = sorted(found, key=lambda c: (-c.saturated_windows, c.subject))
        show(self._empty, not known)
        show(self._body, bool(known))
        more = len(known) - SHOWN
        self._sub.set_text(f"{SHOWN} of {len(known)}" if more > 0 else "")
        for row, capacity in zip(self._rows, known[:SHOWN], strict=False):
            _fill(row, capacity)
        for i, row in enumerate(self._rows):
            show(row.line, i < len(known))


def _row() -> _Row:
    line = box("row-cap")
    with line:
        who = anchor("", "#", "who")
        with box("entry used"):
            text("sized by", "label")
            used, source = text(tag="b"), text(classes="note")
        methods = {name: _entry(name) for name in METHODS}
        with box("entry start"):
            text("cold start P90", "label")
            start, starts = text(tag="b"), text(classes="note")
    line.set_visibility(False)
    return _Row(line, who, used, source, methods, start, starts)


def _entry(name: str) -> _Entry:
    entry = box("entry")
    with entry:
        text(name, "label")
        value, error = text(tag="b"), text(classes="note")
        with box("bar"):
            fill = box("fill")
    return _Entry(entry, value, error, fill)


def _fill(row: _Row, capacity: Capacity) -> None:
    readdress(row.who, capacity.subject, workload_link(capacity.subject))
    row.used.set_text(number(capacity.used_work_per_s))
    row.source.set_text(f"busy {capacity.source}" if capacity.source == "GPUs" else capacity.source)
    methods: dict[str, Method] = {method.name: method for method in capacity.methods}
    for name, entry in row.methods.items():
        method = methods.get(name)
        value = capacity.work_per_s if name == "hybrid" else method.work_per_s if method else None
        error = capacity.relative_error if name == "hybrid" else method.relative_error if method else None
        entry.value.set_text(number(value))
        entry.error.set_text("" if value is None else f"\N{PLUS-MINUS SIGN}{percent(error)}")
        entry.fill.style(f"width: {100 * min(1.0, max(0.0, method.weight)):.0f}%" if method else "width: 0")
        describe(entry.box, "title", _basis(name, method, capacity))
    row.start.set_text(span(capacity.cold_start_s))
    samples = sum(start.samples for start in capacity.cold_starts)
    row.starts.set_text(f"{samples} measured" if samples else "not measured yet")


def _basis(name: str, method: Method | None, capacity: Capacity) -> str:
    """Explanation of how a number was determined."""
    if name == "hybrid":
        proven = capacity.proven_work_per_s
        served = f", {number(proven)} were served in time" if proven is not None else ""
        return f"{_ABOUT[name]}, from {capacity.saturated_windows} saturated windows{served}"
    if method is None:
        return f"{_ABOUT[name]}: {UNKNOWN}"
    if method.judged < 1.0:
        return f"{_ABOUT[name]}; no saturated replica has judged it yet"
    return f"{_ABOUT[name]}; {number(method.judged, 2)} saturated windows judged it"
