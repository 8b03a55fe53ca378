"""Head of the page: name, cells, mode, connection, preferences, and warnings."""

from pathlib import Path

from nicegui import ui
from nicegui.elements.mixins.text_element import TextElement

from flyball_contracts.records import DECISION_TYPES
from flyball_streams.dashboard.feed import Link
from flyball_streams.dashboard.panels.elements import box, describe, restyle, show, text
from flyball_streams.dashboard.preferences import Preferences
from flyball_streams.dashboard.state.fleet import FleetView
from flyball_streams.dashboard.state.journal import Verdict
from flyball_streams.dashboard.state.summary import Summary
from flyball_streams.dashboard.text import UNKNOWN, count, number, percent, plural

LOGO = (Path(__file__).parent.parent / "static" / "governor.svg").read_text(encoding="utf-8")
MODES = {"dry_run": "dry run", "live": "live", "off": "off"}
MAX_CELLS = 4
_SHOWN: tuple[Verdict, ...] = ("done", "running", "planned", "failed", "refused", "superseded")


class Header:
    """The top line and the banners for a dry run and a lost broker."""

    def __init__(self, mode: str, prefs: Preferences) -> None:
        self._mode_setting = mode
        self._prefs = prefs
        self._cells: dict[str, tuple[TextElement, TextElement]] = {}
        other = "light" if prefs.palette.name == "dark" else "dark"
        with box("top", "header"):
            with box("brand", "a").props('href="/" aria-label="Flyball, to the overview"'):
                ui.html(LOGO, sanitize=False)
                text("Flyball", tag="h1")
            self._row = box("cells")
            with self._row:
                self._more = text(classes="chip more")
            box("grow")
            _choice(other, "theme", other, f"Show the page in {other} colours")
            _choice(
                "UTC" if prefs.utc else "local", "zone", "local" if prefs.utc else "UTC",
                f"Times are in {prefs.zone_name}; show them in {'local time' if prefs.utc else 'UTC'}",
            )  # fmt: skip
            self._mode = text(classes="chip mode")
            self._link = text("connecting", "chip link").props('role="status"')
        self._dry = text(classes="banner dry").props('role="status"')
        self._dry.set_text(
            "Dry run: decisions are planned against the real state and not carried out. The fleet does not change."
        )
        self._dry.set_visibility(False)
        self._banner = text(classes="banner lost").props('role="alert"')
        self._banner.set_visibility(False)

    def update(self, view: FleetView, summary: Summary, link: Link) -> None:
        """Patch the texts."""
        for cell in summary.cells[:MAX_CELLS]:
            if cell.name not in self._cells and len(self._cells) < MAX_CELLS:
                with self._row, box("chip"):
                    self._cells[cell.name] = text(cell.name, tag="b"), text(tag="span")
            if cell.name in self._cells:
                size = f"{cell.gpus:,} GPUs" if cell.gpus else f"CPU {percent(cell.cpu)}"
                clock = self._prefs.clock(cell.now_ns)
                self._cells[cell.name][1].set_text(f"{size} \N{MIDDLE DOT} {clock} {self._prefs.zone_name}")
        more = len(summary.cells) - len(self._cells)
        show(self._more, more > 0)
        self._more.set_text(f"and {plural(more, 'cell')} more")
        mode = view.journal.mode(self._mode_setting)
        self._mode.set_text(f"mode: {MODES.get(mode, mode)}")
        restyle(self._mode, "mode", mode)
        show(self._dry, mode == "dry_run")
        live = f"live \N{MIDDLE DOT} {number(summary.frame_rate)} frames/s"
        self._link.set_text(live if link.connected else "no broker")
        restyle(self._link, "link", "live" if link.connected else "down")
        show(self._banner, link.tried and not link.connected)
        again = "The page shows the last known state and keeps trying."
        self._banner.set_text(f"No broker answers at {link.bootstrap} ({link.error or 'no answer'}). {again}")


def _choice(label: str, name: str, value: str, title: str) -> None:
    button = text(label, f"chip choice choose-{name}", "button")
    describe(button, "title", title)
    describe(button, "aria-label", title)
    button.on("click", js_handler=f"() => flyball.choose('{name}', '{value}')")


class Strip:
    """One line about the fleet and the flow of records."""

    def __init__(self) -> None:
        with box("strip"):
            self._items = {
                name: _item(name)
                for name in ("GPUs", "utilisation", "power", "unhealthy GPUs", "decisions", "outcomes", "dead letters")
            }

    def update(self, view: FleetView, summary: Summary) -> None:
        """Patch the texts."""
        gpus = f"{count(summary.gpus)} on {plural(summary.gpu_nodes, 'node')}"
        health = [f"{count(number_of)} {name}" for name, number_of in summary.health.items() if number_of]
        kinds = [f"{count(view.journal.kinds[kind])} {kind}" for kind in DECISION_TYPES if view.journal.kinds[kind]]
        verdicts = [
            f"{count(view.journal.verdicts[word])} {word}" for word in _SHOWN if view.journal.verdicts[word] > 0
        ]
        power = UNKNOWN if summary.power_w is None else f"{number(summary.power_w / 1000)} kW"
        lost = f"{count(view.late)} late, {count(view.undecodable)} unreadable here"
        for name, label in (
            ("GPUs", gpus),
            ("utilisation", percent(summary.utilization)),
            ("power", power),
            ("unhealthy GPUs", ", ".join(health) or "none reported"),
            ("decisions", ", ".join(kinds)),
            ("outcomes", ", ".join(verdicts) or "none yet"),
            ("dead letters", f"{count(view.dead_letters)}; {lost}"),
        ):
            self._items[name].set_text(label)
        bad = "bad" if view.dead_letters or view.undecodable else "well"
        restyle(self._items["dead letters"], "is", bad)
        if view.last_error:
            describe(self._items["dead letters"], "title", view.last_error)


def _item(name: str) -> TextElement:
    with box("item"):
        text(name, "name", "span")
        return text(UNKNOWN, "value", "b")
