"""ARCHITECTURE.md names rooms that are there, and the names in them."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "ARCHITECTURE.md").read_text()
PATHS = sorted({path for path in re.findall(r"`([a-z]+/[\w./]*)`", TEXT)})


@pytest.mark.parametrize("path", PATHS)
def test_a_path_is_there(path: str) -> None:
    assert (ROOT / path).exists()


def test_every_component_is_in_the_house() -> None:
    packages = {path.parent.name for path in ROOT.glob("*/flyball_*/__init__.py")}
    assert set(re.findall(r"`(flyball_\w+)` \|", TEXT)) == packages


def test_names_in_rooms_are_there() -> None:
    named = re.findall(r"`([A-Z]\w+)` in `([\w./]+\.py)`", TEXT)
    assert len(named) >= 3
    assert [(name, path) for name, path in named if name not in (ROOT / path).read_text()] == []
