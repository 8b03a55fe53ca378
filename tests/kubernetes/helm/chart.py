"""The Helm chart as Helm itself renders it, and what a linter of Kubernetes objects asks of it."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

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


def complaints(objects: list[Object]) -> list[str]:
    """What KubeLinter's checks, those that are on by default, would say; its own exceptions are heeded."""
    accounts = {one["metadata"]["name"] for one in objects if one["kind"] == "ServiceAccount"}
    labels = [pod["metadata"]["labels"] for _, pod in pods(objects)]
    problems: list[str] = []
    for one in objects:
        kind, name = one["kind"], one["metadata"]["name"]
        notes: dict[str, str] = one["metadata"].get("annotations") or {}
        excused = {key.removeprefix("ignore-check.kube-linter.io/") for key in notes}
        found: list[str] = []
        if kind == "Service" and not any(one["spec"]["selector"].items() <= of.items() for of in labels):
            found.append("dangling-service")
        if kind == "PodDisruptionBudget":
            wanted = one["spec"]["selector"]["matchLabels"]
            found += [] if any(wanted.items() <= of.items() for of in labels) else ["dangling-pdb"]
            found += [] if one["spec"].get("unhealthyPodEvictionPolicy") else ["pdb-unhealthy-pod-eviction-policy"]
            found += ["pdb-max-unavailable"] if one["spec"].get("maxUnavailable") == 0 else []
        if kind == "NetworkPolicy" and "matchLabels" in one["spec"]["podSelector"]:
            wanted = one["spec"]["podSelector"]["matchLabels"]
            found += [] if any(wanted.items() <= of.items() for of in labels) else ["dangling-networkpolicy"]
        if kind == "Job" and "ttlSecondsAfterFinished" not in one["spec"]:
            found.append("job-ttl-seconds-after-finished")
        if kind in ("DaemonSet", "Deployment", "Job"):
            found += _of_pod(one, accounts)
        problems += [f"{kind} {name}: {check}" for check in found if check not in excused]
    return problems


def _of_pod(one: Object, accounts: set[str]) -> Iterator[str]:
    template: Object = one["spec"]["template"]
    spec = template["spec"]
    selector = one["spec"].get("selector", {}).get("matchLabels", {})
    if not selector.items() <= template["metadata"]["labels"].items():
        yield "mismatching-selector"
    if one["spec"].get("replicas", 1) > 1 and "podAntiAffinity" not in spec.get("affinity", {}):
        yield "no-anti-affinity"
    if spec.get("serviceAccountName") not in accounts:
        yield "non-existent-service-account"
    for key, check in (("hostNetwork", "host-network"), ("hostPID", "host-pid"), ("hostIPC", "host-ipc")):
        if spec.get(key):
            yield check
    paths = [volume["hostPath"]["path"] for volume in spec.get("volumes", ()) if "hostPath" in volume]
    if any(path.split("/")[1] in ("", "boot", "dev", "etc", "lib", "proc", "sys", "usr") for path in paths):
        yield "sensitive-host-mounts"
    for container in cast("list[Object]", spec["containers"]):
        closed: Object = container.get("securityContext", {})
        if re.search(r":latest$|^[^:@]+$", container["image"].rpartition("/")[2]):
            yield "latest-tag"
        if not closed.get("readOnlyRootFilesystem"):
            yield "no-read-only-root-fs"
        if closed.get("privileged") or closed.get("allowPrivilegeEscalation", True):
            yield "privilege-escalation-container"
        if "ALL" not in closed.get("capabilities", {}).get("drop", ()):
            yield "drop-net-raw-capability"
        if not (closed.get("runAsNonRoot") or spec.get("securityContext", {}).get("runAsNonRoot")):
            yield "run-as-non-root"
        for what in ("cpu", "memory"):
            if what not in container["resources"].get("requests", {}):
                yield f"unset-{what}-requirements"
        if any(
            "value" in entry and re.search("SECRET|TOKEN|PASSWORD", entry["name"]) for entry in container.get("env", ())
        ):
            yield "env-var-secret"
        ports = {p for port in container.get("ports", ()) for p in (port.get("name"), port["containerPort"])}
        for probe in ("liveness", "readiness", "startup"):
            port = container.get(f"{probe}Probe", {}).get("httpGet", {}).get("port")
            if port is not None and port not in ports:
                yield f"{probe}-port"
