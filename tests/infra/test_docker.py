"""The Dockerfile fits the repository: stages, sources and extras exist, and the images stay small and unprivileged.

tests/docker/test_images.py builds one of them.
"""

import re
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "infra/docker/Dockerfile").read_text().replace("\\\n", " ")
LINES = [line for line in TEXT.splitlines() if line and not line.startswith("#")]
IMAGES = ("agent", "worker", "actuator")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def _stages() -> dict[str, tuple[str, list[str]]]:
    """Name of each stage: what it is built from, and its instructions."""
    stages: dict[str, tuple[str, list[str]]] = {}
    lines: list[str] = []
    for line in LINES:
        if match := re.fullmatch(r"FROM (\S+) AS (\S+)", line):
            lines = []
            stages[match[2]] = (match[1], lines)
        else:
            assert not line.startswith("FROM"), f"a stage without a name: {line}"
            lines.append(line)
    return stages


STAGES = _stages()


def _chain(name: str) -> list[str]:
    """Instructions of a stage after those of the stages it is built from."""
    base, lines = STAGES[name]
    return (_chain(base) if base in STAGES else []) + lines


def test_base_image_is_pinned() -> None:
    (base,) = re.findall(r"^ARG PYTHON=(\S+)$", TEXT, re.MULTILINE)
    assert re.fullmatch(r"python:3\.11\.\d+-slim-\w+@sha256:[0-9a-f]{64}", base)
    assert {source for source, _ in STAGES.values()} <= {"${PYTHON}", *STAGES}


def test_each_image_that_is_named_is_built() -> None:
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    built = {name: service for name, service in services.items() if "build" in service}
    assert {service["build"]["target"] for service in built.values()} == set(IMAGES) <= set(STAGES)
    for service in built.values():
        assert service["image"] == f"flyball-{service['build']['target']}:{PROJECT['project']['version']}"
    ours = {f"flyball-{name}:{PROJECT['project']['version']}" for name in IMAGES}
    for file in (ROOT / "infra/kubernetes").glob("*.yaml"):
        assert set(re.findall(r"^\s+image: (\S+)$", file.read_text(), re.MULTILINE)) <= ours, file.name


def test_copied_files_exist_and_reach_the_build() -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    kept = {line[1:] for line in ignored if line.startswith("!")}
    assert "*" in ignored
    sources: set[str] = set()
    for line in LINES:
        if line.startswith("COPY ") and "--from=" not in line:
            sources.update(line.split()[1:-1])
    for source in sources:
        assert (ROOT / source).exists(), f"COPY {source}: there is no such file"
    assert sources == kept
    packages = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert {package.split("/")[0] for package in packages} <= sources
    assert PROJECT["project"]["readme"] in sources


def test_stages_that_are_copied_from_exist() -> None:
    assert set(re.findall(r"--from=(\S+)", TEXT)) <= set(STAGES)


def test_extras_exist_and_each_image_brings_only_its_own() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    asked: dict[str, set[str]] = {
        target: set(re.findall(r"\.whl\)\[([\w,]+)\]", "\n".join(_chain(f"install-{target}")))[0].split(","))
        for target in IMAGES
    }
    platforms = {"kubernetes", "keda", "aws", "gcp", "azure"}
    assert asked == {
        "agent": {"agent", "otlp"},
        "worker": {"worker", "dashboard"},
        "actuator": {"actuate", *platforms},
    }
    # Whatever is not an extra of a platform is in an image, or is all, or is for people at their desks.
    assert set(extras) == {name for one in asked.values() for name in one} | {"backtest", "all"}
    brought = {re.split(r"\W", wanted)[0] for extra in asked["worker"] for wanted in extras[extra]}
    assert "numba" in brought, "worker.sizing.policy: shadow_selection"


def test_final_stages_run_without_privileges_and_build_nothing() -> None:
    for target in IMAGES:
        lines = _chain(target)
        users = [line.split()[1] for line in lines if line.startswith("USER ")]
        assert users
        assert users[-1].split(":")[0] not in {"0", "root"}
        installs = [line for line in lines if re.search(r"apt-get|pip install|python -m venv", line)]
        assert not installs
        assert any(re.match(r"RUN pip uninstall .*\bpip\b", line) for line in lines)
        assert f"COPY --from=install-{target} /opt/flyball /opt/flyball" in lines


def test_packages_are_held_to_their_hashes_and_not_compiled() -> None:
    installs = [line for line in LINES if "uv pip install" in line]
    assert len(installs) == len(IMAGES)
    for line in installs:
        assert "--constraint /hashes.txt" in line
        assert "--only-binary :all:" in line
    (builds,) = [line for line in LINES if "uv build" in line]
    assert "--build-constraints /hashes.txt --require-hashes" in builds
    others = [line for line in LINES if "pip install" in line and "uv pip install" not in line]
    assert [("--require-hashes" in line) for line in others] == [True], "uv itself"


def test_secrets_do_not_reach_the_build() -> None:
    rules = (ROOT / ".dockerignore").read_text().splitlines()
    assert not any(fnmatch(".env", rule[1:]) for rule in rules if rule.startswith("!"))
