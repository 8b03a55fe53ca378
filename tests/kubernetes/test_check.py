"""A cordoned node is checked by a Job, and is opened where that succeeds, on a real control plane.

There is no kubelet: the test says how the pod has ended, as one would.
"""

import time
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from tests.actuators.carry_out import ended, submitted
from tests.actuators.samples import check
from tests.kubernetes.cluster import RIGHTS, Cluster

from flyball_actuators.platforms import Done, Failed, Handle, Rejected, Running
from flyball_actuators.platforms.kubernetes import KubernetesPlatform
from flyball_actuators.platforms.kubernetes.check import name_of
from flyball_contracts.burn_in import BurnIn, Device
from flyball_contracts.config import CheckConfig

pytestmark = pytest.mark.integration
SPACE = "flyball-check"
MERGE = "application/merge-patch+json"


@pytest.fixture
def node(cluster: Cluster) -> Iterator[str]:
    """A node that the actuator has cordoned."""
    name = cluster.plane.get("/api/v1/nodes")["items"][0]["metadata"]["name"]
    close(cluster, name)
    clear(cluster)
    yield name
    clear(cluster)


def clear(cluster: Cluster) -> None:
    """Leave no check behind, nor one of other tests."""
    for job in cluster.plane.get(f"/apis/batch/v1/namespaces/{SPACE}/jobs")["items"]:
        path = f"/apis/batch/v1/namespaces/{SPACE}/jobs/{job['metadata']['name']}"
        cluster.plane.request("DELETE", f"{path}?propagationPolicy=Background")
    cluster.until(lambda: not pods(cluster), "no pod of a check is left")


def close(cluster: Cluster, node: str, by: str | None = "m1") -> None:
    body = {"spec": {"unschedulable": True}, "metadata": {"annotations": {"flyball.dev/cordoned-for": by}}}
    who = f"?fieldManager=flyball-{by}" if by else ""
    cluster.plane.request("PATCH", f"/api/v1/nodes/{node}{who}", body, content_type=MERGE)


def spec_of(cluster: Cluster, node: str) -> dict[str, Any]:
    found: dict[str, Any] = cluster.plane.get(f"/api/v1/nodes/{node}")
    return found


def is_closed(cluster: Cluster, node: str) -> bool:
    return bool(spec_of(cluster, node)["spec"].get("unschedulable"))


def pods(cluster: Cluster) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = cluster.plane.get(f"/api/v1/namespaces/{SPACE}/pods")["items"]
    return found


def platform(cluster: Cluster, image: str = "flyball:test") -> KubernetesPlatform:
    return cluster.platform(check=CheckConfig(image=image))


def begun(cluster: Cluster, on: KubernetesPlatform, node: str, **more: Any) -> tuple[Handle, dict[str, Any]]:
    """Submit a check, and see its pod run."""
    handle = submitted(on, check(node=node, **more))
    assert isinstance(handle, Handle), handle
    cluster.until(lambda: [p["status"].get("phase") for p in pods(cluster)] == ["Running"], "the pod of the check runs")
    (pod,) = pods(cluster)
    return handle, pod


def end(cluster: Cluster, pod: dict[str, Any], code: int, message: str) -> None:
    """Say what a kubelet says when a container has ended."""
    ended_at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    state = {"terminated": {"exitCode": code, "message": message, "finishedAt": ended_at, "startedAt": ended_at}}
    container = {"name": "check", "image": "flyball:test", "imageID": "", "ready": False, "restartCount": 0}
    status = {"phase": "Failed" if code else "Succeeded", "containerStatuses": [{**container, "state": state}]}
    path = f"/api/v1/namespaces/{SPACE}/pods/{pod['metadata']['name']}/status"
    code_, response = cluster.plane.request("PATCH", path, {"status": status}, content_type=MERGE)
    assert code_ == 200, response


def result(*ids: str, problems: tuple[str, ...] = ()) -> str:
    found = BurnIn(
        passed=not problems, problems=problems, platform="gpu", seconds=60.0, rounds=9, ids=ids,
        devices=tuple(Device(name="H100", matmul_flops=4e14) for _ in ids),
    )  # fmt: skip
    return msgspec.json.encode(found).decode()


def test_a_node_that_passes_is_opened(cluster: Cluster, node: str) -> None:
    on = platform(cluster)
    plan = submitted(on, check(node=node), dry_run=True)
    assert isinstance(plan, Handle)
    assert f"would check 8 GPUs of node {node}" in plan.answer
    assert not pods(cluster)
    handle, pod = begun(cluster, on, node)
    assert pod["spec"]["nodeName"] == node
    (container,) = pod["spec"]["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "8"
    assert {"name": "FLYBALL_CHECK_GPUS", "value": "8"} in container["env"]
    assert pod["spec"]["automountServiceAccountToken"] is False
    assert isinstance(on.poll(handle), Running)
    assert is_closed(cluster, node)
    again = submitted(on, check(node=node))  # whoever lost the answer makes no second one
    assert isinstance(again, Handle)
    assert len(pods(cluster)) == 1
    end(cluster, pod, 0, result("GPU-1", "GPU-2"))
    found = platform(cluster).find(check(node=node), None)
    assert isinstance(found, Handle)
    done = ended(platform(cluster), found)
    assert isinstance(done, Done), done
    assert "2 gpu devices in 60 s, 9 rounds, at least 4e+14 FLOP/s" in done.answer
    assert done.observed.suspended is False
    assert not is_closed(cluster, node)
    assert "flyball.dev/cordoned-for" not in spec_of(cluster, node)["metadata"].get("annotations", {})


@pytest.mark.parametrize(
    ("code", "message", "words"),
    [
        (1, result("GPU-1", problems=("gpu 0: 3 of 8 matrix products are wrong",)), "3 of 8 matrix products are wrong"),
        (137, "killed", "failed: killed"),
        (0, result("GPU-2"), "did not show that it checked GPU-1"),
        (0, result(), "did not show that it checked GPU-1"),
    ],
)
def test_a_node_that_fails_stays_closed(cluster: Cluster, node: str, code: int, message: str, words: str) -> None:
    on = platform(cluster)
    handle, pod = begun(cluster, on, node, devices=("GPU-1",))
    assert pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "1"
    end(cluster, pod, code, message)
    failed = ended(on, handle)
    assert isinstance(failed, Failed), failed
    assert words in failed.answer
    assert is_closed(cluster, node)


def test_a_node_that_is_open_is_closed_by_its_check(cluster: Cluster, node: str) -> None:
    body = {"spec": {"unschedulable": None}, "metadata": {"annotations": {"flyball.dev/cordoned-for": None}}}
    cluster.plane.request("PATCH", f"/api/v1/nodes/{node}", body, content_type=MERGE)
    assert isinstance(submitted(platform(cluster), check(node=node), dry_run=True), Handle)
    assert not is_closed(cluster, node)
    handle, pod = begun(cluster, platform(cluster), node)
    assert is_closed(cluster, node)
    end(cluster, pod, 0, result("GPU-1"))
    assert isinstance(ended(platform(cluster), handle), Done)
    assert not is_closed(cluster, node)


def test_what_cannot_be_checked_is_refused(cluster: Cluster, node: str) -> None:
    none = submitted(platform(cluster, image=""), check(node=node))
    assert isinstance(none, Rejected)
    assert none.code == "unsupported"
    assert "check.image, or check the node by hand, then run flyball incidents readmit" in none.detail
    more = submitted(platform(cluster), check(node=node, devices=tuple(f"GPU-{i}" for i in range(9))))
    assert isinstance(more, Rejected)
    assert "9 GPUs of node" in more.detail
    cluster.plane.request(
        "PATCH",
        f"/api/v1/nodes/{node}/status",
        {"status": {"allocatable": {"nvidia.com/gpu": "7"}}},
        content_type=MERGE,
    )
    hidden = submitted(platform(cluster), check(node=node, devices=("GPU-1",)))
    cluster.plane.request(
        "PATCH",
        f"/api/v1/nodes/{node}/status",
        {"status": {"allocatable": {"nvidia.com/gpu": "8"}}},
        content_type=MERGE,
    )
    assert isinstance(hidden, Rejected)
    assert "it has 8, and its device plugin offers 7" in hidden.detail
    close(cluster, node, None)
    theirs = submitted(platform(cluster), check(node=node))
    assert isinstance(theirs, Rejected)
    assert "was cordoned by another user, who has to uncordon it" in theirs.detail
    absent = platform(cluster).observe(check(node="absent"))
    assert isinstance(absent, Rejected)
    assert absent.code == "unknown_target"
    assert platform(cluster).find(check(node=node), None) is None
    assert name_of(check("a")) != name_of(check("b"))


def test_the_namespace_of_checks_takes_nothing_else(cluster: Cluster) -> None:
    (space,) = [d for d in RIGHTS if d["kind"] == "Namespace" and d["metadata"]["name"] == SPACE]
    assert space["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    body = {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "other", "namespace": SPACE},
        "spec": {"hostNetwork": True, "containers": [{"name": "c", "image": "i"}]},
    }  # fmt: skip
    code, response = cluster.plane.request("POST", f"/api/v1/namespaces/{SPACE}/pods", body)
    assert code == 403, response
    assert "violates PodSecurity" in response["message"]
