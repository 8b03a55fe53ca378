"""What docker-compose.yml promises, checked on the file itself: no container engine is needed.

`docker compose up` is not run: where these tests run, no registry of images is reached. So the
README's lines are followed as far as the files go: what is copied, filled in and named exists, and this version takes
each `command:`. `test_services_run.py` runs these commands themselves.
"""

import re
import shutil
import tomllib
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from tests.readme.blocks import lines, run

from flyball_cli.main import flyball

ROOT = Path(__file__).resolve().parents[2]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
TEXT = (ROOT / "docker-compose.yml").read_text()
COMPOSE: dict[str, Any] = yaml.safe_load(TEXT)
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
ONE_SHOT = {name for name, service in SERVICES.items() if service["restart"] == "no"}
OURS = re.compile(rf"flyball-[a-z]+:{re.escape(VERSION)}")
PINNED = re.compile(r"[a-z./-]+:\d+\.\d+\.\d+@sha256:[0-9a-f]{64}")
REQUIRED = re.compile(r"\$\{(\w+):\?set \1 in \.env; see infra/env\.example\}")
SECRET = re.compile(r"PASSWORD|TOKEN|SECRET|USERNAME|ADMIN_USER")
# These images write outside their volumes at start.
WRITABLE = {"kafka", "influxdb"}
SOURCES = sorted(ROOT.glob("*/flyball_*/**/*.py"))
each_service = pytest.mark.parametrize("name", SERVICES)


def test_every_part_is_there() -> None:
    parts = {"agent", "worker", "actuator", "dashboard", "sink", "topics", "kafka", "influxdb", "grafana"}
    assert set(SERVICES) == parts
    assert {"topics"} == ONE_SHOT


@each_service
def test_image_is_pinned(name: str) -> None:
    image: str = SERVICES[name]["image"]
    assert (OURS if "build" in SERVICES[name] else PINNED).fullmatch(image), image


@each_service
def test_service_is_hardened(name: str) -> None:
    service = SERVICES[name]
    assert service["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in service["security_opt"]
    assert service["user"].split(":")[0] not in {"", "0", "root"}
    assert not {"privileged", "cap_add", "pid", "ipc"} & set(service)
    assert service.get("read_only", False) == (name not in WRITABLE)
    assert set(service["deploy"]["resources"]["limits"]) == {"cpus", "memory", "pids"}
    assert service["logging"]["options"]["max-size"]


@each_service
def test_long_running_service_restarts_and_has_a_health_check(name: str) -> None:
    service = SERVICES[name]
    if name in ONE_SHOT:
        assert "healthcheck" not in service
        return
    assert service["restart"] == "unless-stopped"
    check = service["healthcheck"]
    assert check["test"][0] in {"CMD", "CMD-SHELL"}
    assert {"interval", "timeout", "retries", "start_period"} <= set(check)


@each_service
def test_ports_are_bound_to_loopback(name: str) -> None:
    for port in SERVICES[name].get("ports", []):
        assert re.fullmatch(r"127\.0\.0\.1:\d+:\d+", port), port


@each_service
def test_depends_on_what_can_become_true(name: str) -> None:
    for other, rule in SERVICES[name].get("depends_on", {}).items():
        assert other in SERVICES
        if rule["condition"] == "service_completed_successfully":
            assert other in ONE_SHOT
        else:
            assert rule["condition"] == "service_healthy"
            assert "healthcheck" in SERVICES[other]


def test_volumes_are_named_and_bind_sources_exist() -> None:
    named: set[str] = set()
    for name, service in SERVICES.items():
        for volume in service.get("volumes", []):
            if isinstance(volume, str):
                named.add(volume.split(":")[0])
                continue
            assert volume["read_only"], f"{name}: {volume}"
            source = volume["source"]
            assert source.startswith(("./", "/proc", "/sys")), f"{name}: {volume}"
            assert source.startswith("/") or (ROOT / source).exists(), f"{name}: no {source}"
    assert named == set(COMPOSE["volumes"])


def test_secrets_come_from_the_environment_and_have_no_default() -> None:
    for name, service in SERVICES.items():
        for variable, value in service.get("environment", {}).items():
            if SECRET.search(variable):
                assert REQUIRED.fullmatch(value), f"{name}: {variable}"
    asked = set(re.findall(r"\$\{(\w+)", TEXT))
    assert asked == set(REQUIRED.findall(TEXT))
    example = dict(
        line.split("=", 1)
        for line in (ROOT / "infra/env.example").read_text().splitlines()
        if line and not line.startswith("#")
    )
    assert set(example) == asked
    assert not any(example.values())


def test_services_reach_kafka_where_it_listens() -> None:
    advertised: str = SERVICES["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"]
    inside, outside = re.fullmatch(r"INTERNAL://([^,]+),HOST://([^,]+)", advertised).groups()  # type: ignore[union-attr]
    assert f"{outside}:9092" in SERVICES["kafka"]["ports"]
    for name, service in SERVICES.items():
        command: list[str] = service.get("command", [])
        if command[:1] == ["flyball"]:
            address = outside if service.get("network_mode") == "host" else inside
            assert command[command.index("--bootstrap") + 1] == address, name


def test_the_readmes_lines_find_what_they_name(tmp_path: Path) -> None:
    copied, up, with_gpus = lines("cp infra/env.example .env")
    (tmp_path / "infra").mkdir()
    shutil.copy(ROOT / "infra/env.example", tmp_path / "infra")
    run(copied, tmp_path)
    filled = re.sub("=$", "=secret", (tmp_path / ".env").read_text(), flags=re.MULTILINE)
    given = dict(line.split("=", 1) for line in filled.splitlines() if line and not line.startswith("#"))
    resolved = yaml.safe_load(re.sub(r"\$\{(\w+):\?[^}]*\}", lambda match: given[match[1]], TEXT))
    named = re.findall(r"# (.*)$", up)[0].lower()
    assert set(re.findall(r"[a-z]+", named)) == set(resolved["services"]) - {"topics"}
    files = re.findall(r"-f (\S+)", with_gpus)
    assert files == ["docker-compose.yml", "infra/compose.gpu.yml"]
    assert [file for file in files if not (ROOT / file).exists()] == []
    assert all(line.split(" #")[0].split()[:2] == ["docker", "compose"] for line in (up, with_gpus))


@pytest.mark.parametrize("name", [name for name, service in SERVICES.items() if "build" in service or name == "topics"])
def test_a_command_is_one_that_the_image_takes(name: str) -> None:
    service = SERVICES[name]
    for words in (service["command"], service.get("healthcheck", {"test": ["CMD"]})["test"][1:]):
        if words[:1] == ["flyball"]:
            chosen: click.Command | None = flyball
            context = click.Context(flyball)
            arguments = words[1:]
            while isinstance(chosen, click.Group):
                chosen = chosen.get_command(context, arguments[0])
                arguments = arguments[1:]
            assert chosen is not None, words
            chosen.make_context(words[1], list(arguments))
    for variable in service.get("environment", {}):
        assert any(variable in path.read_text() for path in SOURCES), f"nothing reads {variable}"


def test_gpu_override_extends_the_agent() -> None:
    override = yaml.safe_load((ROOT / "infra/compose.gpu.yml").read_text())["services"]
    assert set(override) == {"agent"}
    (device,) = override["agent"]["deploy"]["resources"]["reservations"]["devices"]
    assert device["driver"] == "nvidia"
    assert "gpu" in device["capabilities"]
