"""The project: every component is shipped, typed and documented, and nothing lies about."""

import ast
import tomllib
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = sorted(path.parent for path in ROOT.glob("*/flyball_*/__init__.py"))
MODULES = sorted(path for package in PACKAGES for path in package.rglob("*.py"))
ALARM_LINES = 500
ROOM_FILES = 15
BIGGER_ROOMS = {
    ("docs/decisions", ".md"): "numbered in the order in which they were taken",
    ("infra/schemas", ".json"): "generated, one for each record",
    ("tests/contracts/config", ".yml"): "each wrong document beside the right one",
    ("tests/contracts/wire/golden", ".json"): "generated, one for each record and version",
}
OURS = (
    "actuators",
    "bench",
    "cli",
    "collectors",
    "contracts",
    "docs",
    "infra",
    "models",
    "simulator",
    "streams",
    "tests",
)


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_every_component_is_shipped() -> None:
    hatch = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    found = {name(package) for package in PACKAGES}
    assert found == set(hatch["targets"]["wheel"]["packages"])
    assert {path.split("/")[0] for path in found} == set(hatch["dev-mode-dirs"])


@pytest.mark.parametrize("package", PACKAGES, ids=name)
def test_a_component_folder_holds_one_typed_package_of_its_name(package: Path) -> None:
    folder = package.parent
    assert package.name == f"flyball_{folder.name}"
    assert (package / "py.typed").is_file()
    assert not list(folder.glob("*.py")), "component folders are on sys.path: a loose module would shadow others"
    assert not (folder / "__init__.py").exists()


def test_every_folder_with_modules_is_a_package() -> None:
    assert [name(module.parent) for module in MODULES if not (module.parent / "__init__.py").is_file()] == []


def test_tests_are_no_packages() -> None:
    assert [name(path) for path in (ROOT / "tests").rglob("__init__.py")] == []


def test_every_module_says_what_it_is_for() -> None:
    assert [name(path) for path in MODULES if not ast.get_docstring(ast.parse(path.read_text()))] == []


def test_files_stay_small() -> None:
    long = {name(path): lines for path in MODULES if (lines := len(path.read_text().splitlines())) > ALARM_LINES}
    assert long == {}, f"over {ALARM_LINES} lines: split by idea"


def test_folders_stay_small() -> None:
    found = [path for folder in OURS for path in (ROOT / folder).rglob("*.*") if path.is_file()]
    kinds = Counter((name(path.parent), path.suffix) for path in found if path.name != "__init__.py")
    kinds = Counter({room: count for room, count in kinds.items() if "__pycache__" not in room[0]})
    bigger = {room for room, count in kinds.items() if count > ROOM_FILES}
    assert bigger - BIGGER_ROOMS.keys() == set(), f"over {ROOM_FILES} files of one kind: split by subject"
    assert BIGGER_ROOMS.keys() <= bigger, "an exception that is not needed any more: remove it"
