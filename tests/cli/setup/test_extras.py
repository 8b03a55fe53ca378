"""A package that is not installed ends a command in one line, before it has read, waited or computed."""

import ast
import importlib
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from tests.brokers.embedded import EmbeddedBroker
from tests.cli.shell import NOBODY, check_refused, environment

from flyball_cli.extras import EXTRAS, missing
from flyball_contracts.topics import TOPICS

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
WITHOUT = """
import importlib.machinery, sys
blocked, sys.argv = sys.argv[1], ["flyball", *sys.argv[2:]]
find = importlib.machinery.PathFinder.find_spec
class Finder(importlib.machinery.PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if f"{name}.".startswith(f"{blocked}.") else find(name, path, target)
sys.meta_path[sys.meta_path.index(importlib.machinery.PathFinder)] = Finder
from flyball_cli.main import main
main()
"""
"""Runs a command as if one module were not there."""


def test_what_is_imported_already_is_there() -> None:
    importlib.import_module("faust")
    assert missing("worker") == []


def without(module: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-c", WITHOUT, module, *map(str, arguments)]
    return subprocess.run(line, capture_output=True, text=True, timeout=120, env=environment(), check=False)


@pytest.mark.parametrize(
    ("module", "extra", "arguments"),
    [
        ("cramjam", "worker", ["worker", "--bootstrap", NOBODY]),
        ("statsmodels", "worker", ["worker", "--bootstrap", NOBODY, "--history", "absent.parquet"]),
        ("scipy", "worker", ["replay", "absent.parquet"]),
        ("scipy", "worker", ["waste", "absent.parquet"]),
        ("numba", "worker", ["backtest", "absent.parquet"]),
        ("matplotlib", "backtest", ["backtest", "absent.parquet", "--html", "page.html"]),
        ("polars", "worker", ["diff", "absent.parquet", "absent.parquet"]),
        ("polars", "worker", ["import"]),
        ("polars", "worker", ["record", "new.parquet", "--bootstrap", NOBODY]),
        ("influxdb_client", "worker", ["sink", "influx", "--bootstrap", NOBODY]),
        ("scipy", "worker", ["demo", "--headless", "--for", "5"]),
        ("urllib3", "agent", ["demo", "--headless", "--for", "5"]),
        ("fastapi", "dashboard", ["demo", "--for", "5"]),
        ("starlette", "dashboard", ["dashboard", "--bootstrap", NOBODY]),
        ("uvicorn", "dashboard", ["dashboard", "--bootstrap", NOBODY]),
        ("urllib3", "agent", ["feed", "--once"]),
        ("cryptography", "actuate", ["keys", "new", "key.pem"]),
        ("cryptography", "actuate", ["keys", "show", "absent.pem"]),
    ],
)
def test_a_missing_package_is_one_line(
    module: str, extra: str, arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = without(module, *arguments)
    check_refused(done.returncode, done.stderr, f"pip install 'flyball[{extra}]'", f"(missing: {module}")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("module", ["opentelemetry", "google", "urllib3"])
def test_an_output_of_the_agent_names_its_key(module: str, tmp_path: Path) -> None:
    config = tmp_path / "flyball.yaml"
    config.write_text(f'agent: {{state_dir: {tmp_path}, export: {{otlp_endpoint: "http://127.0.0.1:1"}}}}\n')
    done = without(module, "agent", "--config", config, "--bootstrap", NOBODY)
    check_refused(done.returncode, done.stderr, "agent.export.otlp_endpoint", "pip install 'flyball[otlp]'", module)


def test_keys_of_the_actuator_name_their_package(
    embedded_broker: Callable[..., EmbeddedBroker], tmp_path: Path
) -> None:
    broker = embedded_broker({name: topic.partitions for name, topic in TOPICS.items()})
    config, key = tmp_path / "flyball.yaml", "11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo="
    config.write_text(f'actuator: {{keys: [{{public: "{key}", cells: ["*"], workloads: ["*"], tenants: ["*"]}}]}}\n')
    done = without("cryptography", "actuate", "--config", config, "--bootstrap", broker.bootstrap)
    check_refused(done.returncode, done.stderr, "actuator.keys", "pip install 'flyball[actuate]'", "cryptography")


def test_the_doctor_names_what_an_extra_lacks() -> None:
    shown = without("scipy", "doctor").stdout
    assert "not installed: scipy" in shown
    assert "pip install 'flyball[worker]'" in shown


def test_every_requirement_of_an_extra_is_known() -> None:
    names: dict[str, set[str]] = {}
    for name, distributions in packages_distributions().items():
        for one in distributions:
            names.setdefault(re.sub(r"[-_.]+", "-", one).lower(), set()).add(name)
    for extra, requirements in PROJECT["project"]["optional-dependencies"].items():
        if extra == "all":
            continue
        known = {name.partition(".")[0] for name in EXTRAS[extra]}
        for requirement in requirements:
            package = re.match(r"[\w.-]+", requirement)
            assert package is not None
            if package[0] != "flyball":
                assert known & names[re.sub(r"[-_.]+", "-", package[0]).lower()], f"{extra}: {requirement}"


def imported() -> Iterator[tuple[str, str]]:
    """The file and the module's first name of each import in the wheel."""
    for folder in PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]:
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Import):
                    yield from ((path.name, alias.name.partition(".")[0]) for alias in node.names)
                elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                    yield path.name, node.module.partition(".")[0]


def test_every_import_is_of_the_base_or_of_an_extra() -> None:
    base = {"click", "confluent_kafka", "msgspec", "numpy", "yaml", "rich"}
    extras = {name.partition(".")[0] for names in EXTRAS.values() for name in names}
    along = {"aiokafka", "mode", "yarl"}  # come with faust, and are imported after it
    known = base | extras | along | set(sys.stdlib_module_names)
    assert {(file, name) for file, name in imported() if name not in known and not name.startswith("flyball_")} == set()
