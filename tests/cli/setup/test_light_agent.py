"""`pip install flyball[agent]` brings neither JAX nor Faust, so the agent must run without them."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.cli.shell import NOBODY, check_refused

from flyball_cli.main import flyball
from flyball_collectors.agent import memory
from flyball_contracts.errors import ConfigError
from flyball_contracts.kafka import preflight

ROOT = Path(__file__).parents[3]
HEAVY = ("jax", "jaxlib", "faust", "mode", "polars", "statsmodels", "numba", "nicegui", "influxdb_client")
PROGRAM = f"""
import sys
for name in {HEAVY!r}:
    sys.modules[name] = None  # importing it now raises ImportError
sys.argv = ["flyball", *sys.argv[1:]]
from flyball_cli.main import main
main()
"""


SPARED = ("_ssl", "_hashlib", "http.client", "asyncio.base_events", "flyball_collectors.workload", "zoneinfo")
SPARES = f"""
from flyball_cli.commands.services.agent_command import lighten
lighten()
import sys, flyball_cli.options, flyball_contracts.kafka.preflight
from flyball_collectors.agent.reload import ConfigWatch
from flyball_collectors.agent.run import read_once
from flyball_contracts.config import Config
read_once(Config())
print(sorted(set({SPARED!r}) & set(sys.modules)))
import asyncio
print(asyncio.run(asyncio.sleep(0, "used")))
"""


def run_light(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, timeout=60, check=False
    )


def test_agent_measures_without_the_worker_packages() -> None:
    done = run_light("agent", "--once")
    assert done.returncode == 0, done.stderr
    assert "system.memory.limit" in done.stdout


def test_every_platform_is_there_without_the_worker_packages() -> None:
    walk = (
        f"import importlib, pkgutil, sys; [sys.modules.__setitem__(name, None) for name in {HEAVY!r}]\n"
        "import flyball_actuators as all\n"
        "for one in pkgutil.walk_packages(all.__path__, 'flyball_actuators.'): importlib.import_module(one.name)"
    )
    done = subprocess.run([sys.executable, "-c", walk], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    for command in ("actuate", "controller", "topics"):  # what runs in the actuator's image
        assert run_light(command, "--bootstrap", NOBODY, "--help").returncode == 0


def test_the_agent_loads_no_openssl_and_nothing_that_this_node_has_no_use_for() -> None:
    """Megabytes of each node. What is left out is there as soon as something uses it."""
    done = subprocess.run([sys.executable, "-c", SPARES], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.splitlines() == ["[]", "used"], done.stderr


def test_the_agents_threads_share_one_arena_from_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    def first_client(*_: object, **__: object) -> None:
        order.append("client")
        raise ConfigError("enough")

    monkeypatch.setattr(memory, "share_one_arena", lambda: order.append("arena"))
    monkeypatch.setattr(preflight, "preflight", first_client)
    done = CliRunner().invoke(flyball, ["agent", "--bootstrap", NOBODY])
    assert isinstance(done.exception, ConfigError)
    assert order == ["arena", "client"]


def test_actuator_needs_only_the_base_packages() -> None:
    done = run_light("actuate", "--bootstrap", "127.0.0.1:1", "--help")
    assert done.returncode == 0, done.stderr


def test_missing_extra_is_one_line_with_the_remedy() -> None:
    done = run_light("worker")
    assert done.returncode == 2
    assert done.stderr.strip().splitlines()[-1].startswith("error: ")
    assert "pip install 'flyball[worker]'" in done.stderr


def test_a_demo_names_what_it_lacks_before_it_starts() -> None:
    for arguments, extras in ((["--headless", "--for", "5"], "worker"), (["--for", "5"], "worker,dashboard")):
        done = run_light("demo", *arguments)
        check_refused(done.returncode, done.stderr, f"pip install 'flyball[{extras}]'")


def test_agent_extra_is_light() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["agent"]]
    names = {requirement.split(">")[0].split("<")[0].split("=")[0].strip() for requirement in wanted}
    assert names.isdisjoint(HEAVY)
