"""`flyball topics --acls`: the rights that are printed, and the copy in infra/kafka."""

from pathlib import Path

import pytest
from tests.cli.shell import flyball

from flyball_contracts.config import Config
from flyball_contracts.security.rights import roles
from flyball_contracts.topics import CONTROLS, DECISIONS, RESPONSES, WORKLOADS

COPY = Path(__file__).resolve().parents[2] / "infra" / "kafka" / "acls.sh"


def test_the_copy_is_what_is_printed() -> None:
    assert flyball("topics", "--acls").stdout == COPY.read_text(), "flyball topics --acls > infra/kafka/acls.sh"


def test_one_role_for_a_user_of_ours_with_the_groups_of_the_file(tmp_path: Path) -> None:
    config = tmp_path / "flyball.yaml"
    config.write_text("actuator: {group: hands}\n")
    shown = flyball("topics", "--acls", "--role", "actuator", "--principal", "User:CN=a b", "--config", config).stdout
    assert "--operation Read --group hands" in shown
    assert "flyball-agent" not in shown
    assert shown.count("--allow-principal 'User:CN=a b'") == len(shown.splitlines()) - 1


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["--acls", "--role", "king"], "actuator"),
        (["--acls", "--principal", "User:x"], "--role"),
        (["--acls", "--role", "agent", "--principal", "x"], "User:NAME"),
        (["--role", "agent"], "--acls"),
    ],
)
def test_wrong_options_are_one_line(arguments: list[str], names: str) -> None:
    done = flyball("topics", *arguments)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert names in done.stderr


def test_who_measures_does_not_command() -> None:
    table = roles(Config())
    assert {name for name, role in table.items() if DECISIONS in role.writes} == {"worker"}
    assert {name for name, role in table.items() if CONTROLS in role.writes} == {"operator"}
    assert {name for name, role in table.items() if RESPONSES in role.writes} == {"responder"}
    assert {name for name, role in table.items() if WORKLOADS in role.writes} == {"owner", "controller"}
