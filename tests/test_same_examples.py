"""The tests try the same examples on every run, whatever else was imported before."""

import importlib.util
import os
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

NUMBER = 8_314_462_618


def drawn() -> list[int]:
    found: list[int] = []

    @settings(max_examples=300)
    @given(st.integers())
    def draw(number: int) -> None:
        found.append(number)

    draw()
    return found


@pytest.mark.skipif(os.environ.get("FLYBALL_FUZZ") == "1", reason="`make fuzz` explores")
def test_examples_do_not_depend_on_what_is_loaded(tmp_path: Path) -> None:
    before = drawn()
    path = tmp_path / "full_of_numbers.py"
    path.write_text("".join(f"N{i} = {NUMBER + i}\n" for i in range(500)))
    spec = importlib.util.spec_from_file_location("full_of_numbers", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules["full_of_numbers"] = module
    try:
        assert drawn() == before
    finally:
        del sys.modules["full_of_numbers"]
