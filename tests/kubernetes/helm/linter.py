"""The checks that KubeLinter has on by default, by their documented names; its own annotations of exceptions count."""

import re
from collections import Counter
from collections.abc import Iterator
from typing import cast

from tests.kubernetes.helm.chart import Object, pods

CHECKS = (
    "dangling-service", "deprecated-service-account-field", "docker-sock", "drop-net-raw-capability",
    "duplicate-env-var", "env-var-secret", "host-ipc", "host-network", "host-pid", "invalid-target-ports",
    "job-ttl-seconds-after-finished", "latest-tag", "liveness-port", "mismatching-selector", "no-anti-affinity",
    "no-extensions-v1beta", "no-read-only-root-fs", "non-existent-service-account", "pdb-max-unavailable",
    "pdb-min-available", "pdb-unhealthy-pod-eviction-policy", "privilege-escalation-container",
    "privileged-container", "readiness-port", "run-as-non-root", "sensitive-host-mounts", "ssh-port",
    "startup-port", "unsafe-sysctls", "unset-cpu-requirements", "unset-memory-requirements",
)  # fmt: skip
"""Those that are on by default; two more are made here: a policy or budget that selects nothing."""
_SENSITIVE = ("", "boot", "dev", "etc", "lib", "proc", "sys", "usr")
_UNSAFE = re.compile(r"kernel\.(msg|sem|shm)|fs\.mqueue\.|net\.")
_PORT_NAME = re.compile(r"(?=.*[a-z])(?!.*--)[a-z0-9](?:[a-z0-9-]{0,13}[a-z0-9])?")


def complaints(objects: list[Object]) -> list[str]:
    """What is wrong, as ``KIND NAME: CHECK``."""
    accounts = {one["metadata"]["name"] for one in objects if one["kind"] == "ServiceAccount"}
    labels = [pod["metadata"]["labels"] for _, pod in pods(objects)]
    problems: list[str] = []
    for one in objects:
        kind, name = one["kind"], one["metadata"]["name"]
        notes: dict[str, str] = one["metadata"].get("annotations") or {}
        excused = {key.removeprefix("ignore-check.kube-linter.io/") for key in notes}
        found = list(_of_object(one, objects, labels))
        if kind in ("DaemonSet", "Deployment", "Job"):
            found += _of_pod(one, accounts)
        problems += [f"{kind} {name}: {check}" for check in found if check not in excused]
    return problems


def _of_object(one: Object, objects: list[Object], labels: list[dict[str, str]]) -> Iterator[str]:
    kind, spec = one["kind"], one.get("spec", {})
    if one["apiVersion"].startswith("extensions/v1beta"):
        yield "no-extensions-v1beta"
    if kind == "Service":
        if not any(spec["selector"].items() <= of.items() for of in labels):
            yield "dangling-service"
        if not all(_is_target(port.get("targetPort", port["port"])) for port in spec["ports"]):
            yield "invalid-target-ports"
    if kind == "PodDisruptionBudget":
        wanted = spec["selector"]["matchLabels"]
        if not any(wanted.items() <= of.items() for of in labels):
            yield "dangling-pdb"
        if not spec.get("unhealthyPodEvictionPolicy"):
            yield "pdb-unhealthy-pod-eviction-policy"
        if spec.get("maxUnavailable") in (0, "0%"):
            yield "pdb-max-unavailable"
        here = [each["spec"].get("replicas", 1) for each in objects if _is_selected(each, wanted)]
        least = spec.get("minAvailable")
        if least == "100%" or (isinstance(least, int) and any(least >= replicas for replicas in here)):
            yield "pdb-min-available"
    if kind == "NetworkPolicy" and "matchLabels" in spec["podSelector"]:
        wanted = spec["podSelector"]["matchLabels"]
        if not any(wanted.items() <= of.items() for of in labels):
            yield "dangling-networkpolicy"
    if kind == "Job" and "ttlSecondsAfterFinished" not in spec:
        yield "job-ttl-seconds-after-finished"


def _is_target(port: int | str) -> bool:
    return 0 < port < 65536 if isinstance(port, int) else bool(_PORT_NAME.fullmatch(port))


def _is_selected(one: Object, wanted: dict[str, str]) -> bool:
    return one["kind"] == "Deployment" and bool(wanted.items() <= one["spec"]["template"]["metadata"]["labels"].items())


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
    if spec.get("serviceAccount", spec.get("serviceAccountName")) != spec.get("serviceAccountName"):
        yield "deprecated-service-account-field"
    for key, check in (("hostNetwork", "host-network"), ("hostPID", "host-pid"), ("hostIPC", "host-ipc")):
        if spec.get(key):
            yield check
    if any(_UNSAFE.match(entry["name"]) for entry in spec.get("securityContext", {}).get("sysctls", ())):
        yield "unsafe-sysctls"
    paths = [volume["hostPath"]["path"] for volume in spec.get("volumes", ()) if "hostPath" in volume]
    if any(path.split("/")[1] in _SENSITIVE for path in paths):
        yield "sensitive-host-mounts"
    if any(path.endswith("docker.sock") for path in paths):
        yield "docker-sock"
    for container in cast("list[Object]", [*spec.get("initContainers", ()), *spec["containers"]]):
        yield from _of_container(container, spec)


def _of_container(container: Object, spec: Object) -> Iterator[str]:
    closed: Object = container.get("securityContext", {})
    capabilities: Object = closed.get("capabilities", {})
    if re.search(r":latest$|^[^:@]+$", container["image"].rpartition("/")[2]):
        yield "latest-tag"
    if not closed.get("readOnlyRootFilesystem"):
        yield "no-read-only-root-fs"
    if closed.get("privileged"):
        yield "privileged-container"
    if closed.get("allowPrivilegeEscalation", True) or "SYS_ADMIN" in capabilities.get("add", ()):
        yield "privilege-escalation-container"
    if not {"ALL", "NET_RAW"} & {*capabilities.get("drop", ())} or "NET_RAW" in capabilities.get("add", ()):
        yield "drop-net-raw-capability"
    of_pod: Object = spec.get("securityContext", {})
    if not closed.get("runAsNonRoot", of_pod.get("runAsNonRoot")) or closed.get("runAsUser") == 0:
        yield "run-as-non-root"
    if "cpu" not in container["resources"].get("requests", {}):
        yield "unset-cpu-requirements"
    if not all("memory" in container["resources"].get(what, {}) for what in ("requests", "limits")):
        yield "unset-memory-requirements"
    entries = cast("list[Object]", container.get("env", ()))
    if any("value" in entry and re.search("(?i)secret|token|password", entry["name"]) for entry in entries):
        yield "env-var-secret"
    if any(times > 1 for times in Counter(entry["name"] for entry in entries).values()):
        yield "duplicate-env-var"
    ports = cast("list[Object]", container.get("ports") or ())
    if any(port["containerPort"] == 22 for port in ports):
        yield "ssh-port"
    known = {name for port in ports for name in (port.get("name"), port["containerPort"])}
    for probe in ("liveness", "readiness", "startup"):
        shown: Object = container.get(f"{probe}Probe", {})
        asked = [shown[how]["port"] for how in ("httpGet", "tcpSocket", "grpc") if how in shown]
        if any(port not in known for port in asked):
            yield f"{probe}-port"
