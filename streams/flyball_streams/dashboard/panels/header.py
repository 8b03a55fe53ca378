"""Head of the page: name, cells, mode, connection, and the numbers of the fleet."""

from pathlib import Path

from nicegui import ui
from nicegui.elements.mixins.text_element import TextElement

from flyball_streams.dashboard.feed import Link
from flyball_streams.dashboard.panels.elements import box, describe, restyle, show, text
from flyball_streams.dashboard.state import FleetView
from flyball_streams.dashboard.summary import Summary
from flyball_streams.dashboard.text import UNKNOWN, clock, number, percent

LOGO = (Path(__file__).parent.parent / "static" / "governor.svg").read_text(encoding="utf-8")
MODES = {"dry_run": "dry run", "live": "live", "off": "off"}


class Header:
    """The top line and the banner for a lost broker."""

    def __init__(self, mode: str) -> None:
        self._mode_setting = mode
        self._cells: dict[str, tuple[TextElement, TextElement]] = {}
        with box("top", "header"):
            with box("brand"):
                ui.html(LOGO, sanitize=False)
                text("Flyball", tag="h1")
            self._row = box("cells")
            box("grow")
            self._mode = text(classes="chip mode")
            self._link = text("connecting", "chip link").props('role="status"')
        self._banner = text(classes="banner").props('role="alert"')
        self._banner.set_visibility(False)

    def update(self, view: FleetView, summary: Summary, link: Link) -> None:
        """Patch the texts."""
        for cell in summary.cells:
            if cell.name not in self._cells:
                with self._row, box("chip"):
                    self._cells[cell.name] = text(cell.name, tag="b"), text(tag="span")
            size = f"{cell.gpus:,} GPUs" if cell.gpus else f"CPU {percent(cell.cpu)}"
            self._cells[cell.name][1].set_text(f"{size} \N{MIDDLE DOT} {clock(cell.now_ns)} UTC")
        mode = view.mode or self._mode_setting
        self._mode.set_text(f"mode: {MODES.get(mode, mode)}")
        restyle(self._mode, "mode", mode)
        live = f"live \N{MIDDLE DOT} {number(view.frame_rate())} frames/s"
        self._link.set_text(live if link.connected else "no broker")
        restyle(self._link, "link", "live" if link.connected else "down")
        show(self._banner, link.tried and not link.connected)
        again = "The page shows the last known state and keeps trying."
        self._banner.set_text(f"No broker answers at {link.bootstrap} ({link.error or 'no answer'}). {again}")


class Tiles:
    """Six numbers."""

    def __init__(self) -> None:
        with box("tiles"):
            self._gpus = _tile("GPUs")
            self._use = _tile("Utilisation")
            self._power = _tile("Power")
            with box("tile"):
                text("Decisions", "name")
                self._kinds: dict[str, TextElement] = {}
                with box("trio value"):
                    for kind in ("Scale", "Migrate", "Preempt"):
                        with box():
                            self._kinds[kind] = text("0")
                            text(kind, "name", "span")
                self._outcomes = text(classes="note")
            self._health = _tile("Unhealthy GPUs")
            self._dead = _tile("Dead letters")

    def update(self, view: FleetView, summary: Summary) -> None:
        """Patch the numbers."""
        unit = "node" if summary.gpu_nodes == 1 else "nodes"
        _set(self._gpus, f"{summary.gpus:,}", f"on {summary.gpu_nodes:,} {unit}")
        _set(self._use, percent(summary.utilization), f"{summary.busy:,} busy")
        kilo = UNKNOWN if summary.power_w is None else _kilowatts(summary.power_w)
        known = summary.power_w is not None and summary.gpus > 0
        _set(self._power, kilo, f"{(summary.power_w or 0) / summary.gpus:,.0f} W per GPU" if known else "GPU boards")
        for kind, element in self._kinds.items():
            element.set_text(str(view.kinds[kind]))
        statuses = [f"{view.statuses[s]} {s}" for s in ("done", "refused", "failed") if view.statuses[s]]
        self._outcomes.set_text(", ".join(statuses) or "no outcomes yet")
        health = summary.health
        parts = [f"{count} {name}" for name, count in health.items() if count]
        _set(self._health, str(sum(health.values())), ", ".join(parts) or "none reported")
        _set(self._dead, f"{view.dead_letters:,}", f"{view.late:,} late, {view.undecodable:,} unreadable here")
        tile = self._dead[2]
        if ("bad" in tile.classes) != bool(view.dead_letters or view.undecodable):
            tile.classes(toggle="bad")
        if view.last_error:
            describe(tile, "title", view.last_error)


_Tile = tuple[TextElement, TextElement, ui.element]


def _tile(name: str) -> _Tile:
    tile = box("tile")
    with tile:
        text(name, "name")
        return text(UNKNOWN, "value"), text(classes="note"), tile


def _kilowatts(power_w: float) -> str:
    return f"{power_w / 1000:,.{1 if power_w < 1e6 else 0}f} kW"


def _set(tile: _Tile, value: str, note: str) -> None:
    tile[0].set_text(value)
    tile[1].set_text(note)
