"""The rights in `infra/` are those of the table in code, which tests on servers hold to the calls that are made."""

import json
import shutil
from functools import cache
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from flyball_actuators.controller.workloads import KINDS as WORKLOADS
from flyball_actuators.platforms.kubernetes.kinds import KINDS, SCALED
from flyball_actuators.rights import contents, stale
from flyball_actuators.rights.kubernetes import FILES, ROLES
from flyball_cli.commands.setup.schema_command import command

INFRA = Path(__file__).resolve().parents[2] / "infra"
FOLDERS = ("aws", "azure", "gcp", "kubernetes")


@cache
def roles() -> dict[str, list[dict[str, list[str]]]]:
    files = sorted((INFRA / "kubernetes").glob("*.yaml"))
    documents = [one for file in files for one in yaml.safe_load_all(file.read_text()) if one]
    return {one["metadata"]["name"]: one["rules"] for one in documents if one["kind"] == "ClusterRole"}


def test_the_files_are_what_the_command_writes() -> None:
    assert stale(INFRA) == [], "run: flyball schema --write infra"


def written_by_hand(right: str) -> str:
    return (
        right.replace('"Microsoft.Compute/locations/operations/read"', '"*"')
        .replace('"ec2:CreateFleet"', '"ec2:*"')
        .replace("compute.zoneOperations.list", "compute.*")
        .replace("verbs: [list", "verbs: ['*', list")
    )


@pytest.fixture
def infra(tmp_path: Path) -> Path:
    for folder in FOLDERS:
        shutil.copytree(INFRA / folder, tmp_path / folder)
    return tmp_path


@pytest.mark.parametrize("path", sorted(contents(INFRA)))
def test_a_right_that_is_written_by_hand_is_noticed(path: str, infra: Path) -> None:
    file = infra / path
    file.write_text(written_by_hand(file.read_text()))
    assert stale(infra) == [path]


def test_rights_that_are_written_by_hand_are_taken_back(infra: Path) -> None:
    before = {path: (infra / path).read_text() for path in contents(INFRA)}
    for path, text in before.items():
        (infra / path).write_text(written_by_hand(text))
    assert set(stale(infra)) == before.keys()
    done = CliRunner().invoke(command, ["--write", str(infra)])
    assert done.exit_code == 0, done.output
    assert {path: (infra / path).read_text() for path in before} == before


def test_every_role_of_the_cluster_is_in_the_table() -> None:
    assert set(roles()) == set(ROLES)
    assert {f"{name}.yaml" for name in FILES} == {one.name for one in (INFRA / "kubernetes").glob("*.yaml")} - {
        "crds.yaml"
    }
    for name, rules in roles().items():
        assert not any("*" in one for rule in rules for key in ("resources", "verbs") for one in rule[key]), name


def test_a_kind_that_drivers_know_has_its_rights() -> None:
    def granted(role: str, group: str, resource: str) -> set[str]:
        return {
            verb
            for rule in roles()[role]
            if group.partition("/")[0] in rule["apiGroups"] and resource in rule["resources"]
            for verb in rule["verbs"]
        }

    for kind in KINDS:
        direct = kind.scale_method in ("parallelism", "suspend", "bounds")
        assert granted("flyball-actuator", kind.group, kind.resource) == {"get", "list", *(["patch"] if direct else [])}
        scale = granted("flyball-actuator", kind.group, f"{kind.resource}/scale")
        assert scale == ({"update"} if kind in SCALED else set())
    for watched in WORKLOADS:
        assert granted("flyball-controller", watched.group, watched.resource) == {"list", "watch"}


def test_nothing_is_launched_on_all_resources() -> None:
    policy = json.loads((INFRA / "aws" / "actuator-policy.json").read_text())
    wide = [one for one in policy["Statement"] if one["Resource"] == "*" and "Condition" not in one]
    assert [one["Sid"] for one in wide] == ["Look"]
    assert all(action.partition(":")[2].startswith("Describe") for one in wide for action in one["Action"])
