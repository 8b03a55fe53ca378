"""The files with rights in ``infra/``: written by ``flyball schema --write infra``, kept up to date by a test."""

import json
from collections.abc import Mapping
from pathlib import Path

import yaml

from flyball_actuators.rights.clouds import aws_policy, azure_role, gcp_role
from flyball_actuators.rights.kubernetes import FILES, with_rules

_GCP = "# gcloud iam roles create flyballActuator --project PROJECT --file infra/gcp/actuator-role.yaml\n"


def contents(folder: Path) -> Mapping[str, str]:
    """Text of each file by its path below ``folder``; manifests keep everything except their rules."""
    manifests = {f"kubernetes/{name}.yaml": folder / "kubernetes" / f"{name}.yaml" for name in FILES}
    return {
        "aws/actuator-policy.json": json.dumps(aws_policy(), indent=2) + "\n",
        "azure/actuator-role.json": json.dumps(azure_role(), indent=2) + "\n",
        "gcp/actuator-role.yaml": _GCP + yaml.safe_dump(gcp_role(), sort_keys=False, width=110),
        **{path: with_rules(file.read_text(encoding="utf-8")) for path, file in manifests.items() if file.exists()},
    }


def stale(folder: Path) -> list[str]:
    """Paths below ``folder`` that are missing, or differ from what :func:`write` would write."""
    return sorted(path for path, text in contents(folder).items() if _read(folder / path) != text)


def write(folder: Path) -> list[str]:
    """Bring the files below ``folder`` up to date; returns the paths that changed."""
    wanted, changed = contents(folder), stale(folder)
    for path in changed:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(wanted[path], encoding="utf-8")
    return changed


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None
