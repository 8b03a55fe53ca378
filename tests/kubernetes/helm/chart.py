"""The Helm chart as Helm itself renders it."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from tests.conftest import ROOT

VARIABLE = "FLYBALL_HELM"
CHART = ROOT / "infra" / "helm" / "flyball"
NAMESPACE, AGENTS = "flyball", "flyball-agents"
EVERYTHING = (
    "--set", "kafka.bootstrap=kafka.kafka.svc:9092", "--set", "cell=eu-1", "--set", "actuator.namespaces={ml,apps}",
    "--set", "actuator.check.image=registry.example.org/gpu/flyball-check:1",
    "--set", "actuator.kueue.namespaces={ml}", "--set", "actuator.kueue.workloads={train-*}",
    "--set", "actuator.karpenter.rights=true", "--set", "actuator.karpenter.namespaces={ml}",
    "--set", "dashboard.enabled=true", "--set", "dashboard.tokenSecret.name=page", "--set", "kafka.secret=kafka-client",
    "--set", "worker.signingSecret=signing", "--set", "image.registry=registry.example.org/gpu",
    "--set", "networkPolicy.dashboardFrom[0].namespaceSelector.matchLabels.team=sre",
)  # fmt: skip
Object = dict[str, Any]


def helm_program() -> Path | None:
    """Helm, where it was built or is installed."""
    built = sorted((ROOT / ".cache" / "helm").glob("*/helm"))
    named = os.environ.get(VARIABLE) or (str(built[-1]) if built else shutil.which("helm"))
    return Path(named) if named else None


class Helm:
    """Helm with its files in a folder of its own, as an administrator of the cluster behind ``kubeconfig``."""

    def __init__(self, program: Path, folder: Path, kubeconfig: Path | None = None) -> None:
        self._program = program
        self._environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "HELM_DRIVER": "secret"}
        if kubeconfig is not None:
            self._environment["KUBECONFIG"] = str(kubeconfig)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """One command, from the root of the repository."""
        return subprocess.run(
            [str(self._program), *arguments], cwd=ROOT, env=self._environment, capture_output=True, text=True,
            timeout=120, check=False,
        )  # fmt: skip

    def render(self, *arguments: str) -> list[Object]:
        """What a release has."""
        done = self.run("template", "flyball", str(CHART), "-n", NAMESPACE, "--include-crds", *arguments)
        assert done.returncode == 0, done.stderr[-2000:]
        return [one for one in yaml.safe_load_all(done.stdout) if one]


def pods(objects: list[Object]) -> Iterator[tuple[str, Object]]:
    """Names and templates of pods."""
    for one in objects:
        if one["kind"] in ("DaemonSet", "Deployment", "Job"):
            yield one["metadata"]["name"], one["spec"]["template"]


def find(objects: list[Object], kind: str, name: str, namespace: str = "") -> Object:
    """An object that is there once."""
    named = [one for one in objects if one["kind"] == kind and one["metadata"]["name"] == name]
    (found,) = [one for one in named if not namespace or one["metadata"].get("namespace") == namespace]
    return found
