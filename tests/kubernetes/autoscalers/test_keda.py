"""What KEDA hears when it asks Flyball, from a client of KEDA's own contract; the tests then scale as KEDA would."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.actuators.carry_out import ended, submitted
from tests.actuators.samples import preempt, scale
from tests.brokers.server import LOOPBACK
from tests.kubernetes.autoscalers.autoscaling import Ground
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.controlplane import ControlPlane

from flyball_actuators.platforms import AutoscalerPlatform, Done, Handle
from flyball_contracts.config import ScalerConfig
from flyball_contracts.errors import ConfigError

pytestmark = pytest.mark.integration
METRIC = "flyball_wanted_replicas"
CHAT = ("target=chat",)


@pytest.fixture(scope="module")
def ground(control_plane: ControlPlane) -> Ground:
    return Ground(control_plane)


@pytest.fixture
def platform(ground: Ground, cluster: Cluster) -> Iterator[AutoscalerPlatform]:
    made = AutoscalerPlatform(ground.entry(cluster, scaler=ScalerConfig(keda=f"{LOOPBACK}:0")))
    yield made
    made.close()


class Keda:
    """Asks as KEDA does for the ScaledObject of a Deployment."""

    def __init__(self, ground: Ground, cluster: Cluster, address: str, *options: str) -> None:
        self._command = [str(ground.plane.binaries / "keda-client"), *options, address]
        self._namespace = cluster.namespace

    def start(self, method: str, *metadata: str) -> subprocess.Popen[str]:
        command = [*self._command, method, self._namespace, "chat", *(metadata or CHAT)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def call(self, method: str, *metadata: str) -> Any:
        answer, error = self.start(method, *metadata).communicate(timeout=30)
        return json.loads(answer) if answer else error


def deployed(cluster: Cluster, replicas: int, most: int = 8) -> str:
    """A Deployment with the HorizontalPodAutoscaler that KEDA makes of its ScaledObject; its path."""
    cluster.deploy("chat", replicas, workload="chat")
    owner = {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "name": "chat", "uid": "1", "controller": True}
    metric = {"name": f"s0-{METRIC}", "selector": {"matchLabels": {"scaledobject.keda.sh/name": "chat"}}}
    target = {"type": "AverageValue", "averageValue": "1"}
    exact = {"tolerance": "0"}
    cluster.plane.apply(
        {
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "keda-hpa-chat", "namespace": cluster.namespace, "ownerReferences": [owner]},
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "chat"},
                "minReplicas": 1,
                "maxReplicas": most,
                "metrics": [{"type": "External", "external": {"metric": metric, "target": target}}],
                "behavior": {"scaleUp": exact, "scaleDown": exact},
            },
        }
    )
    cluster.ready(cluster.deployments("chat"), replicas)
    return cluster.deployments("chat")


def scaled(cluster: Cluster, path: str, replicas: int) -> None:
    cluster.plane.request("PATCH", path, {"spec": {"replicas": replicas}}, content_type="application/merge-patch+json")


def taken(answer: object) -> Handle:
    assert isinstance(answer, Handle), answer
    return answer


def test_keda_hears_what_is_decided_and_goes_to_zero_and_back(
    ground: Ground, cluster: Cluster, platform: AutoscalerPlatform
) -> None:
    keda, path = Keda(ground, cluster, platform.keda), deployed(cluster, 2)
    stream = keda.start("StreamIsActive")
    assert stream.stdout is not None
    try:
        assert json.loads(stream.stdout.readline()) == {"result": True}
        (spec,) = keda.call("GetMetricSpec")["metricSpecs"]
        assert (spec["metricName"], spec["targetSizeFloat"]) == (METRIC, 1)
        for decision, replicas in (
            (scale("more", before=2, after=5), 5),
            (preempt("none", before=5, after=0, victims=()), 0),
            (scale("again", before=0, after=3), 3),
        ):
            handle = taken(submitted(platform, decision))
            (value,) = keda.call("GetMetrics")["metricValues"]
            assert int(value.get("metricValue", 0)) == value.get("metricValueFloat", 0) == replicas
            assert keda.call("IsActive").get("result", False) == (replicas > 0)
            if replicas in (0, 3):
                assert json.loads(stream.stdout.readline()).get("result", False) == (replicas > 0)
            scaled(cluster, path, replicas)
            assert isinstance(ended(platform, handle), Done)
    finally:
        stream.kill()
        stream.communicate()
    scaled(cluster, path, 4)  # somebody else: it is kept
    cluster.ready(path, 4)
    assert keda.call("GetMetrics")["metricValues"][0]["metricValue"] == "4"


def test_a_question_that_cannot_be_answered_says_why(
    ground: Ground, cluster: Cluster, platform: AutoscalerPlatform
) -> None:
    keda = Keda(ground, cluster, platform.keda)
    for metadata, message in (
        (
            ("scalerAddress=here",),
            f"InvalidArgument desc = ScaledObject {cluster.namespace}/chat: metadata needs target",
        ),
        (("target=chat", "kind=Pod"), "InvalidArgument"),
        (("target=nobody",), "NotFound"),
    ):
        for method in ("IsActive", "StreamIsActive", "GetMetricSpec", "GetMetrics"):
            assert message in keda.call(method, *metadata), method


def test_it_answers_those_alone_whom_an_authority_of_ours_knows(ground: Ground, cluster: Cluster) -> None:
    plane = ground.plane
    authority = plane.certificate("keda-ca")
    server = plane.certificate("keda-server", host="localhost")
    known, other = plane.certificate("keda-operator", "keda-ca"), plane.certificate("stranger")
    config = ScalerConfig(keda="127.0.0.1:0", certificate=f"{server}.crt", client_ca=f"{authority}.crt")
    platform = AutoscalerPlatform(ground.entry(cluster, scaler=config))
    deployed(cluster, 2)
    try:
        address = platform.keda.replace("127.0.0.1", "localhost")
        for options, answered in (
            (("-cert", f"{known}.crt", "-key", f"{known}.key"), True),
            (("-cert", f"{other}.crt", "-key", f"{other}.key"), False),
            ((), False),
        ):
            answer = Keda(ground, cluster, address, "-ca", f"{server}.crt", *options).call("IsActive")
            assert (answer == {"result": True}) == answered, answer
        assert answered or "Unavailable" in answer
    finally:
        platform.close()


def test_what_cannot_be_served_is_said_at_the_start(ground: Ground, cluster: Cluster, tmp_path: Path) -> None:
    nonsense = tmp_path / "tls.crt"
    nonsense.write_text("no certificate")
    for scaler in (
        ScalerConfig(keda="here"),
        ScalerConfig(keda=f"{LOOPBACK}:0", certificate="/nowhere"),
        ScalerConfig(keda=f"{LOOPBACK}:0", certificate=str(nonsense)),
    ):
        with pytest.raises(ConfigError, match=r"actuator.platforms\[0\].scaler.keda: .*; give a free HOST:PORT"):
            AutoscalerPlatform(ground.entry(cluster, scaler=scaler), "actuator.platforms[0]")
