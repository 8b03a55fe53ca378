"""What is applied to a cluster fits Kubernetes' schema; the agent is as closed as an observer can be."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml

from flyball_contracts.config import Config, parse_config

FILE = Path(__file__).resolve().parents[2] / "infra" / "kubernetes" / "agent.yaml"
OBJECTS: list[dict[str, Any]] = list(yaml.safe_load_all(FILE.read_text()))
RIGHTS: list[dict[str, Any]] = list(yaml.safe_load_all(FILE.with_name("actuator.yaml").read_text()))
QUEUE: list[dict[str, Any]] = list(yaml.safe_load_all(FILE.with_name("kueue.yaml").read_text()))
NODES: list[dict[str, Any]] = list(yaml.safe_load_all(FILE.with_name("karpenter.yaml").read_text()))
CONTROLLER: list[dict[str, Any]] = list(yaml.safe_load_all(FILE.with_name("controller.yaml").read_text()))
POLICIES: list[dict[str, Any]] = list(yaml.safe_load_all(FILE.with_name("crds.yaml").read_text()))
ALL = [*OBJECTS, *RIGHTS, *QUEUE, *NODES, *CONTROLLER, *POLICIES]
BY_KIND = {one["kind"]: one for one in OBJECTS}
POD: dict[str, Any] = BY_KIND["DaemonSet"]["spec"]["template"]["spec"]
(AGENT,) = cast("list[dict[str, Any]]", POD["containers"])
CONFIG = parse_config(BY_KIND["ConfigMap"]["data"]["flyball.yaml"], Config)


@pytest.mark.parametrize("one", ALL, ids=lambda one: f"{one['kind']}-{one['metadata']['name']}")
@pytest.mark.parametrize("version", ["1.29", "1.34"])
def test_fits_the_schema(one: Mapping[str, Any], version: str) -> None:
    cast("Any", kubernetes_validate).validate(one, version, strict=True)


def test_runs_unprivileged() -> None:
    of_pod, of_agent = POD["securityContext"], AGENT["securityContext"]
    assert of_pod["runAsNonRoot"]
    assert of_pod["runAsUser"] == of_pod["fsGroup"] == 10001  # of the image
    assert of_pod["seccompProfile"] == {"type": "RuntimeDefault"}
    assert of_agent == {
        "allowPrivilegeEscalation": False,
        "privileged": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {"hostIPC", "shareProcessNamespace"}.isdisjoint(POD)


def test_nothing_of_the_host_can_be_written() -> None:
    of_host = {volume["name"] for volume in POD["volumes"] if "hostPath" in volume}
    mounts = {mount["name"]: mount for mount in AGENT["volumeMounts"]}
    assert of_host == {"proc", "sys", "pods", "machine-id"}
    assert set(mounts) == {volume["name"] for volume in POD["volumes"]}
    assert all(mounts[name].get("readOnly") for name in of_host | {"config"})
    for volume in POD["volumes"]:
        if "hostPath" in volume:
            assert mounts[volume["name"]]["mountPath"] == CONFIG.agent.root + volume["hostPath"]["path"]


def test_the_account_may_only_list_pods_and_read_nodes_and_names() -> None:
    assert BY_KIND["ClusterRole"]["rules"] == [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]},
        {
            "apiGroups": ["flyball.dev"], "resources": ["workloadnames"], "resourceNames": ["flyball"],
            "verbs": ["get"],
        },
    ]  # fmt: skip
    (subject,) = BY_KIND["ClusterRoleBinding"]["subjects"]
    assert subject["name"] == BY_KIND["ServiceAccount"]["metadata"]["name"] == POD["serviceAccountName"]
    assert subject["namespace"] == BY_KIND["Namespace"]["metadata"]["name"]
    assert "Role" not in BY_KIND
    assert "Secret" not in BY_KIND


def test_is_bounded_and_gets_onto_gpu_nodes() -> None:
    assert {"cpu", "memory"} <= set(AGENT["resources"]["limits"])
    assert {"cpu", "memory"} <= set(AGENT["resources"]["requests"])
    assert {"key": "nvidia.com/gpu", "operator": "Exists"} in POD["tolerations"]
    assert "nvidia.com/gpu" not in AGENT["resources"]["limits"]  # it measures GPUs and takes none
    disk_bytes = (
        sum(int(v["emptyDir"]["sizeLimit"].removesuffix("Mi")) for v in POD["volumes"] if "emptyDir" in v) << 20
    )
    assert disk_bytes > 1.5 * CONFIG.agent.spool_bytes


def test_the_probes_ask_where_the_agent_answers() -> None:
    host, _, port = CONFIG.agent.export.metrics_listen.rpartition(":")
    assert (host, "ports" in AGENT) == ("127.0.0.1", False), "closed to all but the node"
    for probe in ("livenessProbe", "startupProbe"):
        assert AGENT[probe]["httpGet"] == {"path": "/health", "host": host, "port": int(port)}


def test_the_configuration_is_that_of_a_pod() -> None:
    assert AGENT["args"][-1] == "/etc/flyball/flyball.yaml"
    assert "kubernetes" in CONFIG.agent.workloads.discover
    assert CONFIG.agent.state_dir in {mount["mountPath"] for mount in AGENT["volumeMounts"]}
    names = {variable["name"]: variable for variable in AGENT["env"]}
    assert names["FLYBALL_NODE"]["valueFrom"]["fieldRef"]["fieldPath"] == "spec.nodeName"
    assert CONFIG.agent.node == ""
