"""The commands that service managers start the agent with are commands of this version."""

import re
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from flyball_cli.main import flyball

INFRA = Path(__file__).resolve().parents[2] / "infra"


def _of_systemd() -> list[str]:
    (line,) = re.findall(r"^ExecStart=\S*/(python .*)$", (INFRA / "systemd/flyball-agent.service").read_text(), re.M)
    return str(line).split()


def _of_kubernetes() -> list[str]:
    objects: list[dict[str, Any]] = list(yaml.safe_load_all((INFRA / "kubernetes/agent.yaml").read_text()))
    (daemon,) = (one for one in objects if one["kind"] == "DaemonSet")
    (container,) = daemon["spec"]["template"]["spec"]["containers"]
    return list(container["args"])


def _of_docker() -> list[str]:
    (line,) = re.findall(r"^CMD (.*)$", (INFRA / "docker/Dockerfile").read_text(), re.M)
    return list(yaml.safe_load(line))


@pytest.mark.parametrize("words", [_of_systemd(), _of_kubernetes()], ids=["systemd", "kubernetes"])
def test_the_agent_takes_what_it_is_given(words: list[str]) -> None:
    *program, name = words[:5]
    assert (program, name) == (["python", "-OO", "-m", "flyball_cli"], "agent")
    arguments = words[5:]
    command = flyball.get_command(click.Context(flyball), name)
    assert command is not None
    assert command.make_context(name, arguments).params["config_path"] is not None


def test_the_image_says_what_it_can() -> None:
    assert _of_docker() == ["flyball", "--help"]
