"""What errors and the README name as examples can be had where only the package is installed."""

import os
import subprocess
import tomllib
from pathlib import Path

import pytest
from tests.cli.shell import check_refused, command, environment, flyball

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("flyball.yaml", "examples/flyball.yaml"),
        ("fleet.yaml", "examples/fleet.yaml"),
        ("task-prolog", "slurm/task-prolog"),
        ("flyball-agent.service", "systemd/flyball-agent.service"),
    ],
)
def test_an_example_is_printed_as_it_is(name: str, path: str) -> None:
    assert flyball("config", "example", name).stdout == (ROOT / "infra" / path).read_text(encoding="utf-8")


def test_an_unknown_example_lists_the_known() -> None:
    done = flyball("config", "example", "worker.yaml")
    check_refused(done.returncode, done.stderr, "'worker.yaml'", "flyball.yaml", "task-prolog")


def test_the_wheel_brings_them() -> None:
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert set(wheel["force-include"]) == {f"infra/{name}" for name in ("examples", "slurm", "systemd")}


@pytest.mark.parametrize(
    ("more", "arguments"),
    [({"PYTHONIOENCODING": "ascii"}, ["doctor", "--bootstrap", "127.0.0.1:1"]), ({}, ["topics"])],
)
def test_a_locale_without_utf_8_is_written_to(more: dict[str, str], arguments: list[str]) -> None:
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", **more}
    done = subprocess.run(
        command(*arguments),
        capture_output=True,
        timeout=60,
        env={**os.environ, **environment(), **plain},
        check=False,
    )
    assert b"Traceback" not in done.stderr
    assert (b"no broker answers" if "doctor" in arguments else b"flyball.dlq.v1") in done.stdout
    assert done.stdout.isascii()
