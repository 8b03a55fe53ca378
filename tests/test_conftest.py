"""The shared fixtures keep their word; the rule about skips is tried on a suite of its own."""

import os
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

SUITE = """
import pytest

def test_in_body():
    pytest.skip("no reason in the body")

@pytest.mark.skipif(True, reason="no reason in the mark")
def test_by_mark():
    pass

@pytest.mark.xfail(reason="known", strict=True)
def test_expected_failure():
    assert False

def test_passes():
    pass
"""
MODULE = """
import pytest
pytest.skip("no reason in the module", allow_module_level=True)
"""
DATA = """
def test_data(data_dir):
    pass
"""


def run_suite(folder: Path, *arguments: str, no_skip: bool) -> str:
    shutil.copy(Path(__file__).with_name("conftest.py"), folder)
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("FLYBALL_", "PYTEST_"))}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    if no_skip:
        environment["FLYBALL_NO_SKIP"] = "1"
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-ra", "--color=no", *arguments, str(folder)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder, check=False).stdout


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    (tmp_path / "test_suite.py").write_text(SUITE)
    (tmp_path / "test_module.py").write_text(MODULE)
    return tmp_path


def test_a_skip_is_a_skip_by_default(suite: Path) -> None:
    assert "1 passed, 3 skipped, 1 xfailed" in run_suite(suite, no_skip=False)


def test_a_skip_is_a_failure_where_none_is_allowed(suite: Path) -> None:
    output = run_suite(suite, "--continue-on-collection-errors", no_skip=True)
    assert "1 failed, 1 passed, 1 xfailed, 2 errors" in output  # a mark skips in set-up, hence an error
    for place in ("body", "mark", "module"):
        assert f"FLYBALL_NO_SKIP=1 allows no skip. Skipped: no reason in the {place}" in output


def test_data_folder_is_the_one_named(tmp_path: Path) -> None:
    (tmp_path / "test_data.py").write_text(DATA)
    assert "1 passed" in run_suite(tmp_path, f"--data={tmp_path}", no_skip=False)
    absent = tmp_path / "absent"
    assert f"no data folder {absent}; name one with --data" in run_suite(tmp_path, f"--data={absent}", no_skip=False)


def test_unique_names_differ(unique: Callable[[str], str]) -> None:
    assert unique("topic").startswith("topic-")
    assert unique("topic") != unique("topic")


@pytest.mark.integration
def test_victoria_takes_the_influx_write_api(victoria: str) -> None:
    line = b"power,gpu.id=7 watts=412.5 1700000000000000000\n"
    write = urllib.request.Request(f"{victoria}/api/v2/write?org=o&bucket=b", data=line, method="POST")
    with urllib.request.urlopen(write, timeout=10) as answer:
        assert answer.status == 204
    urllib.request.urlopen(f"{victoria}/internal/force_flush", timeout=10).close()
    with urllib.request.urlopen(f"{victoria}/api/v1/export?match[]=power_watts", timeout=10) as answer:
        exported = answer.read().decode()
    assert '"gpu.id":"7"' in exported
    assert "412.5" in exported
