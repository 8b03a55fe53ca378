"""The rights in `infra/` are those of the table in code, which tests on servers hold to the calls that are made."""

import json
import shutil
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


def roles() -> dict[str, list[dict[str, list[str]]]]:
    files = sorted((INFRA / "kubernetes").glob("*.yaml"))
    documents = [one for file in files for one in yaml.safe_load_all(file.read_text()) if one]
    return {one["metadata"]["name"]: one["rules"] for one in documents if one["kind"] == "ClusterRole"}


def test_the_files_are_what_the_command_writes() -> None:
    assert stale(INFRA) == [], "run: flyball schema --write infra"


@pytest.mark.parametrize("path", sorted(contents(INFRA)))
def test_a_right_that_is_written_by_hand_is_noticed_and_taken_back(path: str, tmp_path: Path) -> None:
    for folder in FOLDERS:
        shutil.copytree(INFRA / folder, tmp_path / folder)
    file = tmp_path / path
    before = file.read_text()
    file.write_text(
        before.replace('"Microsoft.Compute/locations/operations/read"', '"*"')
        .replace('"ec2:CreateFleet"', '"ec2:*"')
        .replace("compute.zoneOperations.list", "compute.*")
        .replace("verbs: [list", "verbs: ['*', list")
    )
    assert stale(tmp_path) == [path]
    done = CliRunner().invoke(command, ["--write", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert file.read_text() == before


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
