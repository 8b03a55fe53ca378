"""Parts that the views share: a title, facts, tables, and measurements over time."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple, TypeAlias

import numpy as np
from nicegui import ui
from nicegui.element import Element
from nicegui.elements.mixins.text_element import TextElement

from flyball_contracts.records import Inventory, NodeCondition
from flyball_streams.dashboard.charts.history import Lines, history_options
from flyball_streams.dashboard.links import node_link, workload_link
from flyball_streams.dashboard.panels.elements import anchor, box, chart, describe, head, panel, patch, show, text
from flyball_streams.dashboard.preferences import Preferences
from flyball_streams.dashboard.state.fleet import FleetView
from flyball_streams.dashboard.state.nodes import MEMORY, POWER, TEMPERATURE, UTILIZATION, Node
from flyball_streams.dashboard.state.summary import SummaryCache


class View(ABC):
    """One page below the header; built once and patched about once a second."""

    @abstractmethod
    def update(self, view: FleetView, cache: SummaryCache) -> None:
        """Patch what changed."""


class Title:
    """Name and kind of the subject, and the link back."""

    def __init__(self, kind: str, name: str) -> None:
        with box("title"):
            anchor("Overview", "/", "back")
            text("\N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK}", "sep", "span")
            text(kind, "kind", "span")
            self.name = text(name, tag="h2")
            self.chip = text(classes="pill outcome", tag="span")
        self.chip.set_visibility(False)


Rows: TypeAlias = Sequence[Sequence[str | tuple[str, str]]]


class Fact(NamedTuple):
    """One line of facts."""

    name: str
    label: str
    link: str = ""


class FactPanel:
    """Names and values; rows are added and removed with their facts, otherwise only texts change."""

    def __init__(self, title: str, nothing: str) -> None:
        self._shown: list[tuple[str, str]] = []
        self._values: list[TextElement] = []
        with panel("known", title):
            head(title)
            self._empty = text(nothing, "empty")
            self._table = box("proof")

    def update(self, facts: Sequence[Fact]) -> None:
        """Show these facts."""
        rows = [fact for fact in facts if fact.label]
        show(self._empty, not rows)
        shape = [(fact.name, fact.link) for fact in rows]
        if shape == self._shown:
            for value, fact in zip(self._values, rows, strict=True):
                value.set_text(fact.label)
            return
        self._shown, self._values = shape, []
        self._table.clear()
        with self._table:
            for fact in rows:
                text(fact.name)
                self._values.append(anchor(fact.label, fact.link, "value"))


class Table:
    """A small table with a head; an entry is a text, with or without a link.

    Rows with the same links only change texts.
    """

    def __init__(self, columns: Sequence[str]) -> None:
        self._shown: list[list[str]] = []
        self._entries: list[TextElement] = []
        with box("frame"), box("table", "table"):
            with box(tag="thead"), box(tag="tr"):
                for name in columns:
                    text(name, tag="th")
            self._body: Element = box(tag="tbody")

    def update(self, rows: Rows) -> None:
        """Show these rows."""
        entries = [[entry if isinstance(entry, tuple) else (entry, "") for entry in row] for row in rows]
        shape = [[link for _, link in row] for row in entries]
        if shape == self._shown:
            for element, (label, _) in zip(self._entries, chain.from_iterable(entries), strict=True):
                element.set_text(label)
            return
        self._shown, self._entries = shape, []
        self._body.clear()
        with self._body:
            for row in entries:
                with box(tag="tr"):
                    for label, link in row:
                        with box(tag="td"):
                            self._entries.append(anchor(label, link))


class HistoryPanel:
    """Utilisation and memory, power, and temperature over time."""

    def __init__(self, prefs: Preferences) -> None:
        self._prefs = prefs
        self._charts: dict[str, ui.echart] = {}
        with panel("history", "Measurements"):
            with head("Measurements"):
                self._sub = text(classes="sub")
                box("grow")
                with box("legend"):
                    for name, style in (("utilisation", "blue"), ("memory", "violet")):
                        with box(tag="span"):
                            box("swatch").style(f"background: var(--{style})")
                            text(name, tag="span")
            with box("three"):
                for name, unit in (("use", "%"), ("power", "W"), ("heat", "°C")):
                    self._charts[name] = chart(history_options({}, unit, prefs), "chart chart-history")

    def update(self, node: Node | None, row: int | None) -> None:
        """Show one device of a node, or all of them: means, the sum of power, the highest temperature."""
        if node is None:
            return
        times, values = node.history.read()
        if row is not None:
            values = values[:, row : row + 1] if row < values.shape[1] else values[:, :0]
        known = np.isfinite(values)
        count = np.maximum(known.sum(axis=1), 1)
        empty = ~known.any(axis=1)
        total = np.where(empty, np.nan, np.where(known, values, 0).sum(axis=1))
        highest = np.where(empty, np.nan, np.where(known, values, -1).max(axis=1, initial=-1.0))
        mean = (total / count).astype(np.float32)
        use: Lines = {
            "utilisation": (times, 100 * mean[:, UTILIZATION]),
            "memory": (times, 100 * mean[:, MEMORY]),
        }
        sums, most = total.astype(np.float32), highest.astype(np.float32)
        prefs = self._prefs
        patch(self._charts["use"], history_options(use, "%", prefs, top=100.0), "Utilisation and memory in %")
        power: Lines = {"power": (times, sums[:, POWER])}
        patch(self._charts["power"], history_options(power, "W", prefs), "Power in W")
        heat: Lines = {"temperature": (times, most[:, TEMPERATURE])}
        patch(self._charts["heat"], history_options(heat, "°C", prefs), "Temperature in °C")
        self._sub.set_text(
            f"{prefs.clock(int(times[0]))} to {prefs.clock(int(times[-1]))} {prefs.zone_name}"
            if len(times)
            else "no measurements yet"
        )


def node_facts(node: Node, condition: NodeCondition | None, prefs: Preferences) -> list[Fact]:
    """What an inventory says of a node, and whether it gets work."""
    inventory = node.inventory
    if inventory is None:
        return [Fact("inventory", "none has arrived")]
    price = inventory.price_usd_per_hour
    return [
        Fact("cell", inventory.cell),
        Fact("grid zone", inventory.zone),
        Fact("provider", " ".join(part for part in (inventory.provider, inventory.region) if part)),
        Fact("availability zone", inventory.availability_zone),
        Fact("rack", inventory.rack),
        Fact("leaf switch", inventory.leaf),
        Fact("machine", inventory.instance_type),
        Fact("market", inventory.capacity_type.replace("_", " ")),
        Fact("price", "" if price is None else f"${price:g}/h"),
        Fact("takes new work", _takes_work(inventory, condition)),
        Fact("driver", inventory.driver_version),
        Fact("last frame", prefs.stamp(node.time_ns)),
        Fact("inventory", f"epoch {inventory.epoch} of {prefs.stamp(inventory.time_ns)}"),
    ]


def _takes_work(inventory: Inventory, condition: NodeCondition | None) -> str:
    if not inventory.schedulable:
        return "no, it is drained"
    if inventory.agent == "stopped":
        return "no, its agent has stopped"
    if condition is None or condition.condition not in ("cordoned", "drained", "checked"):
        return "yes"
    names = _at_fault(inventory, condition)
    if names is None:
        return "no, it is cordoned"
    return f"yes, but not on {', '.join(names)}" if names else "yes"  # the cordoned GPUs may have left the node


def _at_fault(inventory: Inventory, condition: NodeCondition) -> list[str] | None:
    """The GPUs that a condition is about, as far as the node still has them; ``None`` if it is about all of them."""
    names = [f"GPU {device.index}" for device in inventory.devices if device.id in condition.devices]
    return None if not condition.devices or (names and len(names) == len(inventory.devices)) else names


def condition_facts(inventory: Inventory | None, condition: NodeCondition | None, prefs: Preferences) -> list[Fact]:
    """Whether a node or some of its GPUs may have work, and what they wait for; empty for a healthy one."""
    if condition is None or condition.condition == "back":
        return []
    where = ", ".join(_at_fault(inventory, condition) or ()) if inventory is not None else ""
    since = f"{condition.condition} since {prefs.stamp(condition.since_ns)}: {condition.reason}"
    return [
        Fact("condition", f"{where} {since}" if where else since),
        Fact("waits for a person", condition.held),
        Fact("GPUs that leave or restart with it", str(condition.gpus_moved or "")),
    ]


def place_facts(node: str, workload: str) -> list[Fact]:
    """Location and workload of a device."""
    return [
        Fact("node", node, node_link(node) if node else ""),
        Fact("workload", workload or "free", workload_link(workload) if workload else ""),
    ]


def describe_gone(title: Title, label: str) -> None:
    """Message that there is nothing of this name."""
    show(title.chip, bool(label))
    title.chip.set_text(label)
    describe(title.chip, "title", label)
