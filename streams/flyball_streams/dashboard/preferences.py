"""Preferences of a reader: light or dark colours, UTC or local time."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, tzinfo
from typing import Any
from urllib.parse import unquote
from zoneinfo import ZoneInfo

from flyball_contracts.ids import NS_PER_S
from flyball_streams.dashboard.text import UNKNOWN

THEME_COOKIE, ZONE_COOKIE = "flyball_theme", "flyball_zone"


@dataclass(frozen=True, slots=True)
class Palette:
    """Colours of one mode; text on its ground has a contrast of at least 4.5 : 1.

    ``ramp`` are the places (0..1) and colours of the heat map, idle first.
    """

    name: str
    ground: str
    panel: str
    raised: str
    line: str
    text: str
    muted: str
    blue: str
    green: str
    amber: str
    violet: str
    red: str
    planned: str
    unknown: str
    ramp: tuple[tuple[float, str], ...]
    zones: tuple[str, ...]


DARK = Palette(
    name="dark", ground="#0b0f17", panel="#121722", raised="#1a2130", line="#242c3b", text="#e8ebf2", muted="#98a2b8",
    blue="#6ea8fe", green="#4cc38a", amber="#f2b84b", violet="#c6a5ff", red="#ff7b7b", planned="#8fb8c9",
    unknown="#151b27",
    ramp=((0, "#192132"), (0.2, "#1a3e61"), (0.45, "#177082"), (0.7, "#2e9c7a"), (0.88, "#6cc070"), (1, "#cde474")),
    zones=("#4cc38a", "#5bc8e8", "#f2b84b", "#b99cff", "#f28fb1", "#c8d35a"),
)  # fmt: skip
LIGHT = Palette(
    name="light", ground="#eef1f6", panel="#ffffff", raised="#edf0f6", line="#d5dbe6", text="#17202f", muted="#556076",
    blue="#1d5fd1", green="#0e7344", amber="#8a5a00", violet="#6b3fc4", red="#bf2a3a", planned="#3d6b80",
    unknown="#f4f6fa",
    ramp=((0, "#e4e9f2"), (0.2, "#bcd7ea"), (0.45, "#7fbcc9"), (0.7, "#3f9c86"), (0.88, "#23774f"), (1, "#0c4a33")),
    zones=("#0e7a49", "#0b7a9c", "#a86b00", "#6b3fc4", "#b93a6d", "#6c7500"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Preferences:
    """Preferences of one reader; constant while a page is open."""

    palette: Palette = DARK
    zone: tzinfo = UTC

    @property
    def utc(self) -> bool:
        """Whether times are in UTC rather than in the reader's zone."""
        return self.zone is UTC

    @property
    def zone_name(self) -> str:
        """Name of the time zone, as shown beside times."""
        return "UTC" if self.utc else "local time"

    def clock(self, time_ns: int | None, *, day: bool = False) -> str:
        """Event time to the second, or day and minute with ``day``; an en dash if unknown."""
        if not time_ns:
            return UNKNOWN
        when = datetime.fromtimestamp(time_ns // NS_PER_S, self.zone)
        return f"{when:%d %b %H:%M}" if day else f"{when:%H:%M:%S}"

    def stamp(self, time_ns: int | None) -> str:
        """Date, time and time zone, for places where the day is not obvious."""
        if not time_ns:
            return UNKNOWN
        return f"{datetime.fromtimestamp(time_ns // NS_PER_S, self.zone):%d %b %Y %H:%M:%S} {self.zone_name}"

    def variables(self) -> str:
        """The palette as CSS custom properties."""
        colours = {key: value for key, value in asdict(self.palette).items() if isinstance(value, str)}
        stops = ", ".join(f"{colour} {100 * place:g}%" for place, colour in self.palette.ramp)
        properties = "".join(f"--{key}: {value}; " for key, value in colours.items() if key != "name")
        return f":root {{ color-scheme: {self.palette.name}; {properties}--ramp: linear-gradient(90deg, {stops}); }}"

    def settings(self) -> dict[str, Any]:
        """Settings of the drawing script in the browser."""
        return {**asdict(self.palette), "utc": self.utc}


def preferences_of(cookies: Mapping[str, str]) -> Preferences:
    """Preferences that the browser sent; dark and UTC if it sent none, or an unknown time zone."""
    palette = LIGHT if cookies.get(THEME_COOKIE) == LIGHT.name else DARK
    name = unquote(cookies.get(ZONE_COOKIE, ""))
    if name in ("", "UTC"):
        return Preferences(palette)
    try:
        return Preferences(palette, ZoneInfo(name))
    except (KeyError, OSError, ValueError):  # which one is raised depends on what is wrong with the name
        return Preferences(palette)
