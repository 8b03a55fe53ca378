"""What a reader chooses: colours and clock."""

from datetime import UTC

import pytest
from hypothesis import given, strategies as st
from tests.dashboard.scenes import scene

from flyball_streams.dashboard.preferences import (
    DARK,
    LIGHT,
    THEME_COOKIE,
    ZONE_COOKIE,
    Palette,
    Preferences,
    preferences_of,
)
from flyball_streams.dashboard.text import UNKNOWN


def test_times_are_in_utc_or_in_the_zone_of_the_reader() -> None:
    assert Preferences().clock(scene.T0) == "13:00:00"
    assert Preferences().clock(scene.T0, day=True) == "18 Mar 13:00"
    assert Preferences().stamp(scene.T0) == "18 Mar 2026 13:00:00 UTC"
    berlin = preferences_of({ZONE_COOKIE: "Europe%2FBerlin"})
    assert berlin.clock(scene.T0) == "14:00:00"
    assert berlin.stamp(scene.T0) == "18 Mar 2026 14:00:00 local time"
    assert not berlin.utc
    assert Preferences().clock(None) == Preferences().stamp(0) == UNKNOWN


def test_the_browser_chooses_the_colours() -> None:
    assert preferences_of({}).palette is DARK
    assert preferences_of({THEME_COOKIE: "light"}).palette is LIGHT
    assert preferences_of({THEME_COOKIE: "<script>"}).palette is DARK
    assert LIGHT.panel in preferences_of({THEME_COOKIE: "light"}).variables()


@given(st.text(max_size=40))
def test_any_cookie_is_survived(name: str) -> None:
    prefs = preferences_of({ZONE_COOKIE: name, THEME_COOKIE: name})
    assert prefs.clock(scene.T0) != UNKNOWN


def test_utc_stays_utc() -> None:
    assert preferences_of({ZONE_COOKIE: "UTC"}).zone is UTC


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("palette", [DARK, LIGHT], ids=lambda palette: palette.name)
def test_text_can_be_read_on_its_ground(palette: Palette) -> None:
    inks = (palette.text, palette.muted, palette.blue, palette.green, palette.amber, palette.violet, palette.red)
    for ground in (palette.panel, palette.raised):
        for ink in (*inks, palette.planned):
            light, dark = sorted((luminance(ink), luminance(ground)), reverse=True)
            assert (light + 0.05) / (dark + 0.05) >= 4.5, (ink, ground)
