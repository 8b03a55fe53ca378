"""Small elements that the panels share. Texts from records are always sent as text, never as HTML."""

from collections.abc import Callable
from typing import Any, cast

from nicegui import ui
from nicegui.element import Element
from nicegui.elements.mixins.text_element import TextElement
from nicegui.events import EChartPointClickEventArguments

from flyball_streams.dashboard.charts.palette import Options


def text(label: str = "", classes: str = "", tag: str = "div") -> TextElement:
    """An element that contains only text."""
    element = TextElement(tag=tag, text=label)
    element.classes(classes)
    return element


def anchor(label: str = "", address: str = "", classes: str = "") -> TextElement:
    """A link to another view; plain text without an address."""
    element = text(label, classes, "a" if address else "span")
    if address:
        cast(dict[str, Any], element.props)["href"] = address
    return element


def readdress(element: TextElement, label: str, address: str) -> None:
    """Change the text and target of a link."""
    element.set_text(label)
    describe(element, "href", address)


def box(classes: str = "", tag: str = "div") -> Element:
    """A container element."""
    return ui.element(tag).classes(classes)


def panel(name: str, title: str) -> Element:
    """A titled region; :func:`head` has room for more elements."""
    return box(f"panel {name}", "section").props(f'aria-label="{title}"')


def head(title: str) -> Element:
    """First line of a panel."""
    line = box("head")
    with line:
        text(title, tag="h2")
    return line


def show(element: Element, visible: bool) -> None:
    """Show or hide; sends no message when nothing changes."""
    if element.visible != visible:
        element.set_visibility(visible)


def restyle(element: Element, prefix: str, name: str) -> None:
    """Make ``prefix-name`` the only class with this prefix."""
    wanted = f"{prefix}-{name}"
    classes = cast(list[str], element.classes)
    old = [c for c in classes if c.startswith(f"{prefix}-") and c != wanted]
    if old or wanted not in classes:
        element.classes(add=wanted, remove=" ".join(old))


def describe(element: Element, attribute: str, label: str) -> None:
    """Set an attribute such as ``aria-label`` or ``title``; sends a message only when it changes."""
    props = cast(dict[str, Any], element.props)
    if props.get(attribute) != label:
        props[attribute] = label
        element.update()


def chart(options: Options, classes: str = "chart") -> ui.echart:
    """A chart; a click on a linked item opens the link."""
    return ui.echart(options, on_point_click=_follow).classes(classes).props('role="img"')


def _follow(event: EChartPointClickEventArguments) -> None:
    data = cast(object, event.data)
    if isinstance(data, dict):
        link = cast(dict[str, object], data).get("link")
        if isinstance(link, str) and link.startswith("/"):
            ui.navigate.to(link)


def patch(drawn: ui.echart, options: Options, label: str) -> None:
    """Replace the options; the browser merges them into its chart. Nothing is sent if nothing changed."""
    current = cast(Options, drawn.options)  # pyright: ignore[reportUnknownMemberType]
    props = cast(dict[str, Any], drawn.props)
    if props.get("aria-label") == label and all(current.get(key) == value for key, value in options.items()):
        return
    current.update(options)
    props["aria-label"] = label
    drawn.update()


class Choices:
    """A small native selection list; the first entry selects everything."""

    def __init__(self, name: str, every: str, chosen: Callable[[], None]) -> None:
        self._every = every
        self._names: list[str] = []
        self._chosen = chosen
        self._value = every
        self._select = (
            ui.select([every], value=every, on_change=lambda event: self._pick(str(event.value)))
            .props(f'outlined dense options-dense hide-bottom-space aria-label="{name}"')
            .classes("pick")
        )

    @property
    def value(self) -> str | None:
        """The selected entry, ``None`` for everything."""
        return None if self._value == self._every else self._value

    def offer(self, names: list[str]) -> None:
        """Replace the entries; sends a message only when they changed, and keeps the selection."""
        if names != self._names:
            self._names = names
            options = [self._every, *names]
            if self._value not in options:
                options.append(self._value)
            self._select.set_options(options, value=self._value)  # pyright: ignore[reportUnknownMemberType]

    def _pick(self, value: str) -> None:
        self._value = value
        self._chosen()
