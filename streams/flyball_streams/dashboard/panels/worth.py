"""Top of the overview: service with its curves, cost, energy and carbon, compared with the baseline without Flyball."""

from typing import NamedTuple

from nicegui import ui
from nicegui.element import Element
from nicegui.elements.mixins.text_element import TextElement

from flyball_streams.dashboard.charts.service import ACTUAL, BASELINE, Quantity, service_options
from flyball_streams.dashboard.panels.elements import box, chart, describe, patch, restyle, show, text
from flyball_streams.dashboard.preferences import Preferences
from flyball_streams.dashboard.state.fleet import FleetView
from flyball_streams.dashboard.state.summary import Summary
from flyball_streams.dashboard.state.worth import Figure, worth_of
from flyball_streams.dashboard.text import UNKNOWN

_QUANTITIES: tuple[Quantity, ...] = ("share", "queued", "delay_s")
_COSTS = 4


class _Place(NamedTuple):
    name: TextElement
    value: TextElement
    change: TextElement
    beside: TextElement
    note: TextElement
    bars: Element
    bar: Element
    other: Element


class WorthPanel:
    """Three charts with their numbers and four tiles."""

    def __init__(self, prefs: Preferences) -> None:
        self._prefs = prefs
        with box("worth", "section").props('aria-label="What Flyball is worth"'):
            with box("service"):
                self._service: dict[Quantity, _Place] = {}
                self._charts: dict[Quantity, ui.echart] = {}
                for quantity in _QUANTITIES:
                    with box(f"tile wide figure-{quantity}"):
                        self._service[quantity] = _place()
                        self._charts[quantity] = chart(service_options(quantity, [], [], prefs), "chart chart-service")
            with box("tiles"):
                self._costs = [_tile() for _ in range(_COSTS)]
            with box("facts since"):
                self._since = text(tag="span")
                self._missing = text(tag="span", classes="missing")
                with box("legend") as self._legend:
                    for name, style in ((ACTUAL, "ours"), (BASELINE, "other")):
                        with box(tag="span"):
                            box(f"swatch {style}")
                            text(name, tag="span")

    def update(self, view: FleetView, summary: Summary) -> None:
        """Patch the numbers and the curves."""
        worth = worth_of(view, summary)
        for quantity, place in self._service.items():
            figure = worth.service[quantity]
            _fill(place, figure)
            options = service_options(quantity, worth.actual, worth.baseline, self._prefs)
            beside = f", without Flyball {figure.beside}" if figure.beside else ""
            patch(self._charts[quantity], options, f"{figure.name}: {figure.value}{beside}")
        for place, figure in zip(self._costs, worth.cost, strict=True):
            _fill(place, figure)
        show(self._since, bool(worth.since_ns))
        self._since.set_text(f"Totals since {self._prefs.stamp(worth.since_ns)}")
        show(self._missing, bool(worth.missing))
        self._missing.set_text(worth.missing)
        show(self._legend, bool(worth.baseline))


def _tile() -> _Place:
    with box("tile"):
        return _place()


def _place() -> _Place:
    name = text(classes="name")
    with box("first"):
        value = text(UNKNOWN, "value")
        change = text(classes="change")
    beside = text(classes="beside")
    note = text(classes="note")
    with box("bars") as bars:
        bar, other = box("fill ours"), box("fill other")
    return _Place(name, value, change, beside, note, bars, bar, other)


def _fill(place: _Place, figure: Figure) -> None:
    place.name.set_text(figure.name)
    place.value.set_text(figure.value)
    place.change.set_text(figure.change)
    show(place.change, bool(figure.change))
    restyle(place.change, "is", "same" if figure.better is None else "better" if figure.better else "worse")
    place.beside.set_text(f"without Flyball {figure.beside}")
    show(place.beside, bool(figure.beside))
    place.note.set_text(figure.note)
    describe(place.note, "title", figure.note)
    show(place.bars, figure.part is not None)
    if figure.part is not None and figure.part_beside is not None:
        place.bar.style(f"width: {100 * figure.part:.1f}%")
        place.other.style(f"width: {100 * figure.part_beside:.1f}%")
