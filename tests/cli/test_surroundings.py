"""Files in the working directory of a command are never imported, and a full disk is named."""

import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.cli.shell import environment

from flyball_cli.demo.children import Child

PLANTED = ("click", "json", "msgspec", "flyball_cli", "numpy")


def run(arguments: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        arguments, cwd=folder, capture_output=True, text=True, env=environment(), timeout=120, check=False
    )


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    """A folder whose files have the names of modules, and end any process that imports them."""
    for name in PLANTED:
        (tmp_path / f"{name}.py").write_text("raise SystemExit('imported from the working directory')\n")
    return tmp_path


def test_the_command_imports_nothing_from_the_working_directory(planted: Path) -> None:
    done = run([str(Path(sys.executable).with_name("flyball")), "topics"], planted)
    assert done.returncode == 0, done.stderr
    assert "flyball.decisions.v1" in done.stdout


def test_services_of_the_demo_import_nothing_from_the_working_directory(
    planted: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(planted)
    child = Child("topics", ["topics"], tmp_path_factory.mktemp("logs"))
    child.wait()
    assert child.failure() is None
    assert "flyball.decisions.v1" in child.log.read_text()


def test_a_service_on_a_disk_that_has_filled_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its log may be empty: there is no room for it either."""
    child = Child("topics", ["topics", "--no-such-option"], tmp_path)
    child.wait()
    failure = child.failure()
    assert failure is not None
    assert "make room" not in failure
    monkeypatch.setattr(shutil, "disk_usage", {tmp_path: SimpleNamespace(free=0)}.__getitem__)
    full = child.failure()
    assert full is not None
    assert f"{tmp_path} is on a full disk; make room there, or let TMPDIR name another folder" in full
