"""The Helm chart: what it renders, what a real API server's pod security says of it, and what its rights are."""

import copy
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any, cast

import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml
from tests.conftest import ROOT
from tests.kubernetes.controlplane import ControlPlane
from tests.kubernetes.helm.chart import (
    AGENTS,
    CHART,
    EVERYTHING,
    NAMESPACE,
    Helm,
    Object,
    find,
    helm_program,
    pods,
)
from tests.kubernetes.helm.linter import CHECKS, complaints

from flyball_contracts.config import Config, parse_config

pytestmark = pytest.mark.integration
RIGHTS = ("actuator.yaml", "agent.yaml", "controller.yaml", "karpenter.yaml", "kueue.yaml")


@pytest.fixture(scope="module")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    program = helm_program()
    if program is None:
        pytest.skip("no helm; run infra/helm/fetch")
    return Helm(program, tmp_path_factory.mktemp("helm"))


@pytest.fixture(scope="module")
def whole(helm: Helm) -> list[Object]:
    return helm.render(*EVERYTHING)


def test_helm_itself_finds_nothing(helm: Helm) -> None:
    done = helm.run("lint", "--strict", str(CHART), *EVERYTHING)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("version", ["1.29", "1.34"])
def test_every_object_fits_its_schema(whole: list[Object], version: str) -> None:
    for one in whole:
        if one["apiVersion"].partition("/")[0] != "flyball.dev":
            cast("Any", kubernetes_validate).validate(one, version, strict=True)


@pytest.mark.parametrize("more", [(), ("--set", "agent.metrics.open=true"), ("--set", "networkPolicy.enabled=false")])
def test_a_linter_finds_nothing(helm: Helm, more: tuple[str, ...]) -> None:
    assert complaints(helm.render(*EVERYTHING, *more)) == []


BROKEN: dict[str, tuple[str, str, Any]] = {
    "dangling-service": ("Service", "spec.selector", {"app": "nobody"}),
    "invalid-target-ports": ("Service", "spec.ports", [{"port": 80, "targetPort": "Not_A_Name"}]),
    "pdb-max-unavailable": ("PodDisruptionBudget", "spec.maxUnavailable", 0),
    "pdb-min-available": ("PodDisruptionBudget", "spec.minAvailable", "100%"),
    "pdb-unhealthy-pod-eviction-policy": ("PodDisruptionBudget", "spec.unhealthyPodEvictionPolicy", ""),
    "job-ttl-seconds-after-finished": ("Job", "spec", {"template": None}),
    "no-extensions-v1beta": ("Deployment", "apiVersion", "extensions/v1beta1"),
    "mismatching-selector": ("Deployment", "spec.selector", {"matchLabels": {"app": "nobody"}}),
    "no-anti-affinity": ("Deployment", "spec.template.spec.affinity", {}),
    "non-existent-service-account": ("Deployment", "spec.template.spec.serviceAccountName", "nobody"),
    "deprecated-service-account-field": ("Deployment", "spec.template.spec.serviceAccount", "nobody"),
    "host-ipc": ("Deployment", "spec.template.spec.hostIPC", True),
    "host-network": ("Deployment", "spec.template.spec.hostNetwork", True),
    "host-pid": ("Deployment", "spec.template.spec.hostPID", True),
    "unsafe-sysctls": (
        "Deployment", "spec.template.spec.securityContext", {"runAsNonRoot": True, "sysctls": [{"name": "net.x"}]},
    ),
    "sensitive-host-mounts": ("Deployment", "spec.template.spec.volumes", [{"hostPath": {"path": "/etc"}}]),
    "docker-sock": ("Deployment", "spec.template.spec.volumes", [{"hostPath": {"path": "/run/docker.sock"}}]),
    "drop-net-raw-capability": ("container", "securityContext.capabilities", {"drop": ["KILL"]}),
    "no-read-only-root-fs": ("container", "securityContext.readOnlyRootFilesystem", False),
    "privilege-escalation-container": ("container", "securityContext.allowPrivilegeEscalation", True),
    "privileged-container": ("container", "securityContext.privileged", True),
    "run-as-non-root": ("container", "securityContext.runAsNonRoot", False),
    "latest-tag": ("container", "image", "registry:5000/flyball"),
    "unset-cpu-requirements": ("container", "resources.requests", {"memory": "1Gi"}),
    "unset-memory-requirements": ("container", "resources.limits", {"cpu": "1"}),
    "env-var-secret": ("container", "env", [{"name": "my_secret", "value": "x"}]),
    "duplicate-env-var": ("container", "env", [{"name": "A", "value": "x"}, {"name": "A", "value": "y"}]),
    "ssh-port": ("container", "ports", [{"containerPort": 22}]),
    "liveness-port": ("container", "livenessProbe", {"httpGet": {"port": 1}}),
    "readiness-port": ("container", "readinessProbe", {"tcpSocket": {"port": 1}}),
    "startup-port": ("container", "startupProbe", {"grpc": {"port": 1}}),
}  # fmt: skip
"""For each check, what breaks it in the worker's Deployment, its container, or the first object of a kind."""


def test_the_linter_sees_each_thing_that_it_looks_for(whole: list[Object]) -> None:
    assert BROKEN.keys() == {*CHECKS}
    for check, (kind, path, value) in BROKEN.items():
        objects = copy.deepcopy(whole)
        named = {"Deployment": "flyball-worker", "container": "flyball-worker"}.get(kind, "")
        one = next(
            each
            for each in objects
            if each["kind"] == ("Deployment" if kind == "container" else kind)
            and each["metadata"]["name"].startswith(named)
        )
        if kind == "Deployment":
            one["spec"]["replicas"] = 2
        at: Any = one["spec"]["template"]["spec"]["containers"][0] if kind == "container" else one
        *way, last = path.split(".")
        for step in way:
            at = at.setdefault(step, {})
        at[last] = {"template": one["spec"]["template"]} if kind == "Job" else value
        assert check in {problem.rpartition(": ")[2] for problem in complaints(objects)}, check


def test_kube_linter_finds_nothing(whole: list[Object], tmp_path: Path) -> None:
    linter = shutil.which("kube-linter")
    if linter is None:
        print("NOT TRIED: kube-linter itself; this machine has none, and its module is not served")
        return
    rendered = tmp_path / "flyball.yaml"
    rendered.write_text(yaml.safe_dump_all(whole))
    done = subprocess.run([linter, "lint", str(rendered)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_rights_are_those_of_infra_kubernetes(whole: list[Object]) -> None:
    shipped: dict[str, Any] = {}
    for name in RIGHTS:
        documents = yaml.safe_load_all((ROOT / "infra" / "kubernetes" / name).read_text())
        shipped |= {one["metadata"]["name"]: one["rules"] for one in documents if one["kind"] == "ClusterRole"}
    assert {one["metadata"]["name"]: one["rules"] for one in whole if one["kind"] == "ClusterRole"} == shipped
    assert not [one for one in whole if one["kind"] == "Role"]
    bound = {
        (one["kind"], one["roleRef"]["name"], one["metadata"].get("namespace", "")): [
            (subject["name"], subject["namespace"]) for subject in one["subjects"]
        ]
        for one in whole
        if one["kind"].endswith("Binding")
    }
    assert bound == {
        ("ClusterRoleBinding", "flyball-agent", ""): [("flyball-agent", AGENTS)],
        ("ClusterRoleBinding", "flyball-actuator-nodes", ""): [("flyball-actuator", NAMESPACE)],
        ("ClusterRoleBinding", "flyball-kueue-check", ""): [("flyball-actuator", NAMESPACE)],
        ("RoleBinding", "flyball-kueue", "ml"): [("flyball-actuator", NAMESPACE)],
        ("ClusterRoleBinding", "flyball-karpenter", ""): [("flyball-actuator", NAMESPACE)],
        ("RoleBinding", "flyball-keeper", "ml"): [("flyball-actuator", NAMESPACE)],
        ("ClusterRoleBinding", "flyball-controller", ""): [("flyball-controller", NAMESPACE)],
        ("ClusterRoleBinding", "flyball-controller-machines", ""): [("flyball-controller", NAMESPACE)],
        ("ClusterRoleBinding", "flyball-names", ""): [
            ("flyball-actuator", NAMESPACE),
            ("flyball-autoscaler", NAMESPACE),
        ],
        ("RoleBinding", "flyball-actuator-checks", "flyball-check"): [("flyball-actuator", NAMESPACE)],
        ("RoleBinding", "flyball-actuator", "ml"): [("flyball-actuator", NAMESPACE)],
        ("RoleBinding", "flyball-actuator", "apps"): [("flyball-actuator", NAMESPACE)],
    }


def test_only_what_calls_the_api_server_has_a_token(whole: list[Object]) -> None:
    tokens = {name for name, pod in pods(whole) if pod["spec"].get("automountServiceAccountToken")}
    assert tokens == {"flyball-actuator", "flyball-agent", "flyball-controller"}
    accounts = [one for one in whole if one["kind"] == "ServiceAccount"]
    assert all(one["automountServiceAccountToken"] is False for one in accounts)


def test_each_part_has_the_image_that_brings_what_it_needs(whole: list[Object]) -> None:
    images = {name: pod["spec"]["containers"][0]["image"].rpartition("/")[2] for name, pod in pods(whole)}
    actuator, worker = "flyball-actuator:0.1.0", "flyball-worker:0.1.0"
    assert images == {
        "flyball-actuator": actuator, "flyball-controller": actuator, "flyball-topics-1": actuator,
        "flyball-worker": worker, "flyball-dashboard": worker, "flyball-agent": "flyball-agent:0.1.0",
    }  # fmt: skip


def test_the_actuator_is_somebody_for_a_cloud(helm: Helm, whole: list[Object]) -> None:
    said = helm.render(
        *EVERYTHING, "--set", r"actuator.account.annotations.azure\.workload\.identity/client-id=0-1",
        "--set-string", r"actuator.account.podLabels.azure\.workload\.identity/use=true",
        "--set", "networkPolicy.clouds.ports={443,80}",
        "--set", "networkPolicy.clouds.to[0].ipBlock.cidr=169.254.0.0/16",
        "--set", f"image.actuatorDigest=sha256:{'0' * 64}",
    )  # fmt: skip
    accounts = {
        one["metadata"]["name"]: one["metadata"].get("annotations") for one in said if one["kind"] == "ServiceAccount"
    }
    assert accounts.pop("flyball-actuator") == {"azure.workload.identity/client-id": "0-1"}
    assert not any(accounts.values())
    labelled = [name for name, pod in pods(said) if "azure.workload.identity/use" in pod["metadata"]["labels"]]
    assert labelled == ["flyball-actuator"]
    spec = find(said, "NetworkPolicy", "flyball-clouds")["spec"]
    assert spec["podSelector"] == {"matchLabels": {"app.kubernetes.io/name": "flyball-actuator"}}
    (out,) = spec["egress"]
    assert [one["port"] for one in out["ports"]] == [443, 80]
    assert out["to"] == [{"ipBlock": {"cidr": "169.254.0.0/16"}}]
    assert not [one for one in whole if one["metadata"]["name"] == "flyball-clouds"]
    pinned = {name for name, pod in pods(said) if "@sha256:" in pod["spec"]["containers"][0]["image"]}
    assert pinned == {"flyball-actuator", "flyball-controller", "flyball-topics-1"}


def test_the_custom_resources_are_the_generated_ones(whole: list[Object]) -> None:
    generated = list(yaml.safe_load_all((ROOT / "infra" / "kubernetes" / "crds.yaml").read_text()))
    assert [one for one in whole if one["kind"] == "CustomResourceDefinition"] == generated


def test_a_change_of_what_is_shipped_reaches_the_chart() -> None:
    for name in (*(f"files/{one}" for one in RIGHTS), "crds/crds.yaml"):
        link = CHART / name
        assert link.is_symlink()
        assert link.resolve() == ROOT / "infra" / "kubernetes" / link.name


def test_the_configuration_loads_and_is_what_the_values_say(helm: Helm, whole: list[Object]) -> None:
    for name, space in (("flyball", NAMESPACE), ("flyball-agent", AGENTS)):
        config = parse_config(find(whole, "ConfigMap", name, space)["data"]["flyball.yaml"], Config)
        assert config.kafka.bootstrap == "kafka.kafka.svc:9092"
        assert config.agent.cell == config.controller.cell == "eu-1"
        assert config.actuator.mode == "dry_run"
        queue, platform = config.actuator.platforms
        assert (queue.driver, queue.namespaces, queue.workloads) == ("kueue", ("ml",), ("train-*",))
        assert (platform.driver, platform.cells, platform.namespaces) == ("kubernetes", ("eu-1",), ("ml", "apps"))
        assert platform.check.image == "registry.example.org/gpu/flyball-check:1"
        assert config.worker.signing_key == "/etc/flyball-signing/signing.pem"
    over = helm.render(*EVERYTHING, "--set", "config.worker.sizing.policy=shadow_selection,config.agent.period_s=2")
    config = parse_config(find(over, "ConfigMap", "flyball", NAMESPACE)["data"]["flyball.yaml"], Config)
    assert (config.worker.sizing.policy, config.agent.period_s, config.agent.cell) == ("shadow_selection", 2.0, "eu-1")


def test_the_agents_port_is_closed_until_it_is_opened(helm: Helm, whole: list[Object]) -> None:
    def shown(objects: list[Object]) -> tuple[str, Any, Any]:
        daemon = find(objects, "DaemonSet", "flyball-agent")
        (agent,) = daemon["spec"]["template"]["spec"]["containers"]
        config = parse_config(find(objects, "ConfigMap", "flyball-agent")["data"]["flyball.yaml"], Config)
        return config.agent.export.metrics_listen, agent.get("ports"), agent["livenessProbe"]["httpGet"].get("host")

    assert shown(whole) == ("127.0.0.1:9400", None, "127.0.0.1")
    listen, (port,), host = shown(helm.render(*EVERYTHING, "--set", "agent.metrics.open=true"))
    assert (listen, port["hostPort"], host) == ("0.0.0.0:9400", 9400, None)


def test_a_digest_pins_every_image_and_goes_before_the_tag(helm: Helm, whole: list[Object]) -> None:
    def images(objects: list[Object]) -> set[str]:
        return {container["image"] for _, pod in pods(objects) for container in pod["spec"]["containers"]}

    registry = "registry.example.org/gpu"
    digests = {what: f"sha256:{place * 64}" for what, place in (("agent", "a"), ("worker", "b"), ("actuator", "c"))}
    assert images(whole) == {f"{registry}/flyball-{what}:0.1.0" for what in digests}
    values = [part for what, digest in digests.items() for part in ("--set", f"image.{what}Digest={digest}")]
    pinned = helm.render(*EVERYTHING, *values)
    assert images(pinned) == {f"{registry}/flyball-{what}@{digest}" for what, digest in digests.items()}
    assert complaints(pinned) == []


def test_secrets_are_named_and_never_held(whole: list[Object]) -> None:
    assert not [one for one in whole if one["kind"] == "Secret"]
    named = {
        volume["secret"]["secretName"]
        for _, pod in pods(whole)
        for volume in pod["spec"]["volumes"]
        if "secret" in volume
    }
    assert named == {"kafka-client", "signing"}
    (page,) = find(whole, "Deployment", "flyball-dashboard")["spec"]["template"]["spec"]["containers"]
    assert page["env"] == [
        {"name": "FLYBALL_DASHBOARD_TOKEN", "valueFrom": {"secretKeyRef": {"name": "page", "key": "token"}}}
    ]


def test_a_password_is_a_file_of_the_secret(helm: Helm) -> None:
    password = "file:/etc/flyball-kafka/password"
    objects = helm.render(*EVERYTHING, "--set", f"kafka.client.sasl\\.password={password}")
    for name, pod in pods(objects):
        (secret,) = [volume for volume in pod["spec"]["volumes"] if volume["name"] == "kafka"]
        assert secret["secret"]["secretName"] == "kafka-client", name
        mounts = {mount["name"]: mount["mountPath"] for mount in pod["spec"]["containers"][0]["volumeMounts"]}
        assert password.startswith(f"file:{mounts['kafka']}/"), name
    for one in objects:
        if one["kind"] == "ConfigMap":
            assert yaml.safe_load(one["data"]["flyball.yaml"])["kafka"]["client"]["sasl.password"] == password


@pytest.mark.parametrize(("more", "port"), [((), 80), (("--set", "dashboard.tlsSecret=page-tls"), 443)])
def test_the_page_has_tls_of_its_own_where_a_secret_is_named(helm: Helm, more: tuple[str, ...], port: int) -> None:
    objects = helm.render(*EVERYTHING, *more)
    assert find(objects, "Service", "flyball-dashboard")["spec"]["ports"][0]["port"] == port
    pod = find(objects, "Deployment", "flyball-dashboard")["spec"]["template"]["spec"]
    mounts = {mount["name"]: mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}
    secrets = {one["name"]: one["secret"]["secretName"] for one in pod["volumes"] if "secret" in one}
    config = parse_config(find(objects, "ConfigMap", "flyball")["data"]["flyball.yaml"], Config)
    assert secrets.get("tls") == ("page-tls" if more else None)
    assert config.dashboard.certificate == (f"{mounts['tls']}/tls.crt" if more else "")


def test_nothing_comes_in_or_goes_out_but_what_is_said(whole: list[Object]) -> None:
    policies = {one["metadata"]["name"]: one["spec"] for one in whole if one["kind"] == "NetworkPolicy"}
    closed = policies["flyball-default-deny"]
    assert closed["policyTypes"] == ["Ingress", "Egress"]
    assert "ingress" not in closed
    assert "egress" not in closed
    here = {name: pod["metadata"]["labels"] for name, pod in pods(whole) if name != "flyball-agent"}
    assert all(closed["podSelector"]["matchLabels"].items() <= labels.items() for labels in here.values())
    (api,) = policies["flyball-api-server"]["podSelector"]["matchExpressions"]
    assert api["values"] == ["flyball-actuator", "flyball-controller"]
    assert [name for name, spec in policies.items() if "ingress" in spec] == ["flyball-dashboard"]


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ((), "at '/kafka/bootstrap'"),
        (("kafka.bootstrap=kafka",), "at '/kafka/bootstrap'"),
        (("kafka.bootstrap=k:1", "actuator.mode=live", "actuator.namespaces={ml}"), "at '/actuator/allow'"),
        (("kafka.bootstrap=k:1", "dashboard.enabled=true"), "at '/dashboard/tokenSecret/name'"),
        (("kafka.bootstrap=k:1", "image.tag=latest"), "at '/image/tag'"),
        (("kafka.bootstrap=k:1", "image.workerDigest=sha256:abc"), "at '/image/workerDigest'"),
        (("kafka.bootstrap=k:1", "kafka.client.sasl\\.password=x"), "at '/kafka/client/sasl.password'"),
        (("kafka.bootstrap=k:1", "worker.replica=2"), "additional properties 'replica' not allowed"),
    ],
)
def test_wrong_values_are_refused_with_their_place(helm: Helm, values: tuple[str, ...], says: str) -> None:
    arguments = [part for value in values for part in ("--set", value)]
    done = helm.run("template", str(CHART), *arguments)
    assert done.returncode != 0
    assert says in done.stderr


def test_pod_security_of_the_api_server_takes_every_pod(control_plane: ControlPlane, whole: list[Object]) -> None:
    levels = {f"level-{level}": level for level in ("restricted", "privileged")}
    for name, level in levels.items():
        labels = {"pod-security.kubernetes.io/enforce": level, "pod-security.kubernetes.io/enforce-version": "latest"}
        control_plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})

    def created(name: str, template: Object, space: str) -> tuple[int, str]:
        spec = {
            key: value
            for key, value in template["spec"].items()
            if key not in ("runtimeClassName", "priorityClassName")
        }
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        status, answer = control_plane.request("POST", f"/api/v1/namespaces/{space}/pods?dryRun=All", pod)
        return status, json.dumps(answer)

    for name, template in pods(whole):
        status, answer = created(name, template, "level-restricted")
        if name == "flyball-agent":
            assert status == 403
            assert "violates PodSecurity" in answer
            assert created(name, template, "level-privileged")[0] == 201
        else:
            assert status == 201, answer
    agents = find(whole, "Namespace", AGENTS)
    assert agents["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "privileged"
