"""Decisions carried out by the cluster's own HorizontalPodAutoscalers, which ask Flyball; it writes nothing."""

import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.actuators.carry_out import ended, submitted
from tests.actuators.loop import PARTITIONS, config_for, ended as all_ended, of, publish, running, without_effect
from tests.actuators.rows import observed_row
from tests.actuators.samples import preempt, scale, spec
from tests.brokers.embedded import EmbeddedBroker
from tests.brokers.server import LOOPBACK
from tests.faults.testbed import wait_until
from tests.kubernetes.autoscalers.autoscaling import EXAMPLE, ROLE, Ground
from tests.kubernetes.cluster import DEADLINE_S, Cluster
from tests.kubernetes.controlplane import AUTOSCALER_USER, ControlPlane

from flyball_actuators.platforms import AutoscalerPlatform, Done, Failed, Handle, Rejected, Running, Superseded
from flyball_contracts.config import ScalerConfig
from flyball_contracts.errors import ConfigError

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def ground(control_plane: ControlPlane) -> Ground:
    return Ground(control_plane)


@pytest.fixture
def platform(ground: Ground, cluster: Cluster) -> Iterator[AutoscalerPlatform]:
    made = AutoscalerPlatform(ground.entry(cluster))
    yield made
    made.close()


def autoscale(cluster: Cluster, name: str, most: int = 8, **changes: Any) -> None:
    """Give a Deployment the autoscaler of the example."""
    spec: dict[str, Any] = {**EXAMPLE["spec"], "maxReplicas": most, **changes}
    spec["scaleTargetRef"] = {**spec["scaleTargetRef"], "name": name}
    if "metrics" not in changes:
        external: dict[str, Any] = EXAMPLE["spec"]["metrics"][0]["external"]
        metric = {**external["metric"], "selector": {"matchLabels": {"kind": "Deployment", "name": name}}}
        spec["metrics"] = [{"type": "External", "external": {**external, "metric": metric}}]
    cluster.plane.apply({**EXAMPLE, "metadata": {"name": name, "namespace": cluster.namespace}, "spec": spec})


def deployed(cluster: Cluster, name: str, replicas: int, **changes: Any) -> str:
    """A Deployment with its autoscaler; its path."""
    cluster.deploy(name, replicas, workload=name)
    autoscale(cluster, name, **changes)
    cluster.ready(cluster.deployments(name), replicas)
    return cluster.deployments(name)


def rejected(answer: object) -> str:
    assert isinstance(answer, Rejected), answer
    return f"{answer.code}: {answer.detail}"


def test_an_autoscaler_does_what_it_is_told_and_otherwise_keeps_what_there_is(
    cluster: Cluster, platform: AutoscalerPlatform
) -> None:
    path = deployed(cluster, "chat", 2)
    for before, after in ((2, 5), (5, 3)):
        done = ended(platform, _taken(submitted(platform, scale(f"to-{after}", before=before, after=after))))
        assert isinstance(done, Done), done
        assert (done.observed.replicas, done.observed.ready) == (after, after)
    cluster.plane.request(
        "PATCH", path, {"spec": {"replicas": 4}}, content_type="application/merge-patch+json"
    )  # somebody else: it is kept
    cluster.ready(path, 4)
    items = cluster.plane.get(_metric(cluster, "chat"))["items"]
    assert [(item["value"], item["metricLabels"]["name"]) for item in items] == [("4", "chat")]


def test_one_replica_more_of_many_is_not_lost_in_the_tolerance(cluster: Cluster, platform: AutoscalerPlatform) -> None:
    deployed(cluster, "many", 12, most=20)
    assert isinstance(ended(platform, _taken(submitted(platform, scale(workload="many", before=12, after=13)))), Done)
    deployed(cluster, "stiff", 12, most=20, behavior={})
    message = rejected(submitted(platform, scale(workload="stiff", before=12, after=13)))
    assert "takes 12 for near enough to 13: its tolerance is 10%; set behavior.scaleUp.tolerance: 0" in message


def test_what_an_autoscaler_would_not_do_is_refused_and_says_why(
    cluster: Cluster, platform: AutoscalerPlatform
) -> None:
    deployed(cluster, "chat", 2)
    cluster.deploy("alone", 2, workload="alone")
    cluster.deploy("deaf", 2, workload="deaf")
    cpu = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}
    autoscale(cluster, "deaf", metrics=[{"type": "Resource", "resource": cpu}])
    space = cluster.namespace
    for decision, message in (
        (scale(before=2, after=9), f"unsupported: HorizontalPodAutoscaler {space}/chat has maxReplicas 8; raise it"),
        (preempt(before=2, after=0, victims=()), "has minReplicas 1; lower it, or scale by KEDA, which goes to zero"),
        (preempt(before=2, after=1, victims=("chat-0",)), "a choice of the replicas that stop"),
        (scale(before=2, after=3, power_limit_w=300.0), "a power limit"),
        (scale(workload="alone", before=2, after=3), f"no_platform: nothing scales Deployment {space}/alone"),
        (scale(workload="deaf", before=2, after=3), "does not query external metric flyball_wanted_replicas"),
        (scale(workload="nobody", before=2, after=3), "unknown_target: "),
    ):
        found = platform.observe(decision)
        answer = found if isinstance(found, Rejected) else platform.submit(decision, found, dry_run=False)
        assert message in rejected(answer), decision
    assert platform.submit(scale(before=2, after=3), _seen(platform), dry_run=True)
    assert cluster.plane.get(_metric(cluster, "chat"))["items"][0]["value"] == "2"


def test_a_word_survives_a_restart_and_the_later_one_stands(
    ground: Ground, cluster: Cluster, platform: AutoscalerPlatform
) -> None:
    slow = {"scaleUp": {"stabilizationWindowSeconds": 5, "tolerance": "0"}}
    deployed(cluster, "chat", 2, behavior=slow)
    first = _taken(submitted(platform, scale("first", before=2, after=4)))
    platform.close()
    restarted = AutoscalerPlatform(ground.entry(cluster))
    try:
        assert isinstance(restarted.poll(first), Running)
        second = _taken(submitted(restarted, scale("second", before=2, after=3)))
        replaced = restarted.poll(first)
        assert isinstance(replaced, Superseded), replaced
        assert "by decision second" in replaced.answer
        done = ended(restarted, second)
        assert isinstance(done, Done), done
        assert done.observed.replicas == 3
        assert restarted.find(scale("second", before=2, after=3), None) is not None
        assert restarted.find(scale("third", before=3, after=4), None) is None
    finally:
        restarted.close()


def test_why_nothing_happens_is_said(cluster: Cluster, platform: AutoscalerPlatform) -> None:
    path = deployed(cluster, "chat", 2)
    handle = _taken(submitted(platform, scale(before=2, after=4)))
    platform.close()  # nobody answers any more
    answer = platform.poll(handle)
    assert isinstance(answer, Running), answer
    assert f"Deployment {cluster.namespace}/chat has 2 replicas of 4" in answer.answer
    cluster.plane.request("DELETE", path)
    cluster.until(lambda: cluster.plane.request("GET", path)[0] == 404, "it is gone")
    gone = platform.poll(handle)
    assert isinstance(gone, Failed), gone


def test_the_rights_that_are_shipped_are_the_calls_that_are_made(
    cluster: Cluster, platform: AutoscalerPlatform
) -> None:
    deployed(cluster, "chat", 2)
    assert isinstance(ended(platform, _taken(submitted(platform, scale(before=2, after=3)))), Done)
    held = [f"/api/v1/namespaces/{cluster.namespace}/pods/{pod['metadata']['name']}" for pod in cluster.pods("chat")]
    for path in held:
        cluster.hold(path, "it ends slowly")
    handle = _taken(submitted(platform, scale("less", before=3, after=2)))
    cluster.until(lambda: "still ending" in str(platform.poll(handle)), "what still ends is waited for")
    for path in held:
        cluster.hold(path, None)
    assert isinstance(ended(platform, handle), Done)
    cluster.deploy("rank", 1, workload="rank", kind="StatefulSet")
    platform.observe(scale(workload="rank"))
    calls = [call["objectRef"] | {"verb": call["verb"]} for call in cluster.plane.calls(AUTOSCALER_USER)]
    made = {
        (call.get("apiGroup", ""), call["resource"], call["verb"])
        for call in calls
        if call.get("namespace") == cluster.namespace
    }
    others = {call["resource"] for call in calls if call.get("namespace") == "kube-system"}
    granted = {
        (group, resource, verb)
        for rule in ROLE["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    absent = ("leaderworkerset.x-k8s.io", "leaderworkersets", "get")  # this cluster does not have the kind
    assert made | {absent} == granted
    assert {call["verb"] for call in calls} <= {"get", "list"}
    assert others == {"configmaps"}


def test_nobody_but_the_api_server_is_answered(cluster: Cluster, platform: AutoscalerPlatform, ground: Ground) -> None:
    address = f"https://{platform.metrics}/apis/external.metrics.k8s.io/v1beta1"
    context = ssl.create_default_context(cafile=f"{ground.path}.crt")
    context.check_hostname = False
    with pytest.raises((urllib.error.URLError, ssl.SSLError, ConnectionError)):
        urllib.request.urlopen(address, timeout=5, context=context)
    other = cluster.plane.certificate("somebody", "front-proxy-ca")
    context.load_cert_chain(f"{other}.crt", f"{other}.key")
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(address, timeout=5, context=context)


def test_questions_that_have_no_answer(cluster: Cluster, platform: AutoscalerPlatform) -> None:
    base = f"/apis/external.metrics.k8s.io/v1beta1/namespaces/{cluster.namespace}"
    for path, status, message in (
        (f"{base}/queue", 404, "query flyball_wanted_replicas"),
        (f"{base}/flyball_wanted_replicas", 400, "name: NAME"),
        (f"{base}/flyball_wanted_replicas?labelSelector=name!%3Da", 400, "use name=NAME"),
        (f"{base}/flyball_wanted_replicas?labelSelector=name%3Da,kind%3DPod", 400, "kind 'Pod' has no replicas"),
        (f"{base}/flyball_wanted_replicas?labelSelector=name%3Da", 404, "Deployment"),
        (f"{base.replace(cluster.namespace, 'default')}/flyball_wanted_replicas?labelSelector=name%3Da", 404, "add it"),
    ):
        found, answer = _settled(cluster, path)
        assert (found, message in answer["message"]) == (status, True), (path, found, answer)


def test_settings_that_cannot_serve(ground: Ground, cluster: Cluster) -> None:
    entry = ground.entry(cluster)
    for changes, message in (
        ({"scaler": ScalerConfig()}, "scaler: nothing is served"),
        ({"namespaces": ()}, "namespaces: none is named"),
        ({"scaler": ScalerConfig(metrics=f"{LOOPBACK}:0")}, "scaler.certificate: the external metrics API speaks TLS"),
        (
            {"scaler": ScalerConfig(metrics=f"{LOOPBACK}:0", certificate="/nowhere")},
            "scaler.certificate: /nowhere",
        ),
        (
            {"scaler": ScalerConfig(metrics="here", certificate=f"{ground.path}.crt")},
            "scaler.metrics: here",
        ),
    ):
        with pytest.raises(ConfigError, match=message):
            AutoscalerPlatform(ground.entry(cluster, **changes), "actuator.platforms[0]")
    assert entry.driver == "autoscaler"


def test_from_a_decision_on_the_topic_to_a_verified_outcome(
    ground: Ground, cluster: Cluster, embedded_broker: Callable[..., EmbeddedBroker], tmp_path: Path
) -> None:
    bootstrap = embedded_broker(PARTITIONS).bootstrap
    path = deployed(cluster, "chat", 2)
    config = config_for(
        bootstrap, "autoscaled", mode="live", ledger=str(tmp_path / "ledger"), platforms=(ground.entry(cluster),),
        allow=("chat",), kill_switch=str(tmp_path / "stop"),
    )  # fmt: skip
    with running(without_effect(config), clock=time.time_ns):
        publish(bootstrap, spec(), scale("plan", before=2, after=5, time_ns=time.time_ns()))
        wait_until(all_ended(bootstrap, 1), "it is planned", DEADLINE_S)
        items = cluster.plane.get(_metric(cluster, "chat"))["items"]
        assert [item["value"] for item in items] == ["2"], "the autoscaler is told what there is"
    assert cluster.plane.get(path)["spec"]["replicas"] == 2
    with running(config, clock=time.time_ns):
        publish(bootstrap, scale("grow", before=2, after=5, time_ns=time.time_ns()))
        wait_until(all_ended(bootstrap, 2), "five replicas", DEADLINE_S)
        publish(bootstrap, preempt("less", before=5, after=3, time_ns=time.time_ns()))
        wait_until(all_ended(bootstrap, 3), "three replicas", DEADLINE_S)
    for decision, count in (("grow", 5), ("less", 3)):
        last = of(bootstrap, decision, "done")
        assert last.observed is not None
        assert (last.driver, last.observed.replicas, last.observed.ready) == ("autoscaler", count, count)
    row = observed_row(bootstrap, "autoscaler")
    assert (row.verbs, row.planned) == ({"Preempt": (1, 1), "Scale": (1, 1)}, 1)


def _settled(cluster: Cluster, path: str) -> tuple[int, Any]:
    """The answer once the API server knows that the aggregated API is there again."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        status, answer = cluster.plane.request("GET", path)
        if status != 503:
            return status, answer
        assert time.monotonic() < deadline, answer
        time.sleep(0.2)


def _metric(cluster: Cluster, name: str) -> str:
    path = (
        f"/apis/external.metrics.k8s.io/v1beta1/namespaces/{cluster.namespace}/flyball_wanted_replicas"
        f"?labelSelector=kind%3DDeployment,name%3D{name}"
    )
    assert _settled(cluster, path)[0] == 200
    return path


def _seen(platform: AutoscalerPlatform) -> Any:
    return platform.observe(scale(before=2, after=3))


def _taken(answer: Handle | Rejected) -> Handle:
    assert isinstance(answer, Handle), answer
    return answer
