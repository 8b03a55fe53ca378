"""Files in the working directory of a command are never imported."""

import subprocess
import sys
from pathlib import Path

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
