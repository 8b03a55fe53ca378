"""Small elements that the panels share. Texts from records always travel as text, never as HTML."""

from typing import Any, cast

from nicegui import ui
from nicegui.element import Element
from nicegui.elements.mixins.text_element import TextElement

from flyball_streams.dashboard.charts.palette import Options


def text(words: str = "", classes: str = "", tag: str = "div") -> TextElement:
    """An element that holds nothing but text."""
    element = TextElement(tag=tag, text=words)
    element.classes(classes)
    return element


def box(classes: str = "", tag: str = "div") -> Element:
    """An element for others to stand in."""
    return ui.element(tag).classes(classes)


def panel(name: str, title: str) -> Element:
    """A titled region; the head is open for more elements in :func:`head`."""
    return box(f"panel {name}", "section").props(f'aria-label="{title}"')


def head(title: str) -> Element:
    """First line of a panel."""
    line = box("head")
    with line:
        text(title, tag="h2")
    return line


def show(element: Element, visible: bool) -> None:
    """Show or hide without a message when nothing changes."""
    if element.visible != visible:
        element.set_visibility(visible)


def restyle(element: Element, prefix: str, name: str) -> None:
    """Leave ``prefix-name`` as the only class of its family."""
    wanted = f"{prefix}-{name}"
    classes = cast(list[str], element.classes)
    old = [c for c in classes if c.startswith(f"{prefix}-") and c != wanted]
    if old or wanted not in classes:
        element.classes(add=wanted, remove=" ".join(old))


def describe(element: Element, attribute: str, words: str) -> None:
    """Set an attribute such as ``aria-label`` or ``title``, with a message only when it changes."""
    props = cast(dict[str, Any], element.props)
    if props.get(attribute) != words:
        props[attribute] = words
        element.update()


def patch(chart: ui.echart, options: Options, label: str) -> None:
    """Replace the options that changed; the browser merges them into the chart that it has."""
    current = cast(Options, chart.options)  # pyright: ignore[reportUnknownMemberType]
    props = cast(dict[str, Any], chart.props)
    current.update(options)
    props["aria-label"] = label
    chart.update()
