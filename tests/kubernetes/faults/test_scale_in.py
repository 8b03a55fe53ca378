"""Load is taken off before a replica goes, and what did not start is taken back, on a real control plane."""

import time
from typing import Any

import pytest
from tests.actuators.carry_out import ended, submitted
from tests.actuators.samples import preempt, scale
from tests.kubernetes.cluster import Cluster, pod

from flyball_actuators.platforms import Done, Failed, Handle, Rejected, Running, Superseded
from flyball_actuators.platforms.kubernetes import KubernetesPlatform, saga
from flyball_actuators.platforms.kubernetes.replicas import count, undo
from flyball_actuators.platforms.kubernetes.replicas.going import COST

pytestmark = pytest.mark.integration
MERGE = "application/merge-patch+json"
SERVING = "flyball.dev/serving"
Pod = dict[str, Any]


def deploy(cluster: Cluster, replicas: int, *, kind: str = "Deployment", cold_start: str = "100ms", **more: str) -> str:
    """A served workload `chat`, its Service, and an address for each of its pods; its path."""
    labels = {"app": "chat", **more}
    spec = {
        "replicas": replicas, "selector": {"matchLabels": {"app": "chat"}}, "template": pod(labels, 1, cold_start)
    }  # fmt: skip
    if kind == "StatefulSet":
        spec |= {"serviceName": "chat", "podManagementPolicy": "Parallel"}
    metadata = cluster.named("chat", "chat")
    service = {"selector": labels, "ports": [{"port": 80}]}
    named = {"name": "chat", "namespace": cluster.namespace}
    cluster.plane.apply(
        {"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": spec},
        {"apiVersion": "v1", "kind": "Service", "metadata": named, "spec": service},
    )
    path = f"/apis/apps/v1/namespaces/{cluster.namespace}/{kind.lower()}s/chat"
    cluster.ready(path, replicas)
    for i, each in enumerate(cluster.pods("chat")):  # kwok gives no addresses, and only pods with one are endpoints
        address = {"status": {"podIP": f"10.9.0.{i + 1}", "podIPs": [{"ip": f"10.9.0.{i + 1}"}]}}
        assert cluster.plane.request("PATCH", f"{path_of(cluster, each)}/status", address, content_type=MERGE)[0] == 200
    cluster.until(lambda: len(endpoints(cluster)) == replicas, "all serve")
    return path


def path_of(cluster: Cluster, one: Pod) -> str:
    return f"/api/v1/namespaces/{cluster.namespace}/pods/{one['metadata']['name']}"


def endpoints(cluster: Cluster) -> set[str]:
    slices = cluster.plane.get(f"/apis/discovery.k8s.io/v1/namespaces/{cluster.namespace}/endpointslices")["items"]
    return {e["targetRef"]["name"] for s in slices for e in s.get("endpoints") or () if e["conditions"]["ready"]}


def names(pods: list[Pod]) -> set[str]:
    return {one["metadata"]["name"] for one in pods}


def begun(platform: KubernetesPlatform, decision: Any) -> Handle:
    handle = submitted(platform, decision)
    assert isinstance(handle, Handle), handle
    return handle


def less(id_: str = "less", before: int = 4, after: int = 2) -> Any:
    return scale(id_, before=before, after=after, time_ns=time.time_ns())


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
def test_a_replica_goes_once_its_load_is_off(cluster: Cluster, kind: str) -> None:
    path = deploy(cluster, 4, kind=kind, **{SERVING: "true"})
    decision, platform = less(), cluster.platform()
    with cluster.plane.controllers_paused():  # endpoints stay as they are
        handle = begun(platform, decision)
        assert "load is taken off" in handle.answer
        waits = platform.poll(handle)
        assert isinstance(waits, Running), waits
        assert cluster.plane.get(path)["spec"]["replicas"] == 4
        marked = [one for one in cluster.pods("chat") if one["metadata"]["labels"][SERVING] == "draining"]
        assert len(marked) == 2
        found = cluster.platform().find(decision, None)  # whoever takes over goes on with the same pods
        assert isinstance(found, Handle)
        assert all(one["metadata"]["uid"] in found.operation for one in marked)
    if kind == "StatefulSet":
        assert names(marked) == {"chat-2", "chat-3"}
    other, off = cluster.platform(), False
    while cluster.plane.get(path)["spec"]["replicas"] == 4:
        with cluster.plane.controllers_paused():  # what is read here is what the platform reads
            off = not endpoints(cluster) & names(marked)
            assert isinstance(other.poll(handle), Running)
        time.sleep(0.2)
    assert off, "the number was lowered while a pod still had load"
    assert isinstance(ended(other, handle), Done)
    assert names(cluster.pods("chat")).isdisjoint(names(marked))
    assert len(endpoints(cluster)) == 2
    again = cluster.platform().find(decision, None)
    assert isinstance(again, Handle)
    assert isinstance(cluster.platform().poll(again), Done)


def test_who_goes_is_who_serves_least(cluster: Cluster) -> None:
    deploy(cluster, 4, **{SERVING: "true"})
    cheap = sorted(cluster.pods("chat"), key=lambda one: one["metadata"]["name"])[0]
    body = {"metadata": {"annotations": {COST: "-5"}}}
    assert cluster.plane.request("PATCH", path_of(cluster, cheap), body, content_type=MERGE)[0] == 200
    assert isinstance(ended(cluster.platform(), begun(cluster.platform(), less(after=3))), Done)
    assert cheap["metadata"]["name"] not in names(cluster.pods("chat"))


def test_load_comes_back_where_the_number_is_not_lowered(cluster: Cluster) -> None:
    path = deploy(cluster, 3, **{SERVING: "true"})
    platform = cluster.platform()
    with cluster.plane.controllers_paused():
        handle = begun(platform, less(before=3, after=1))
        body = {"spec": {"replicas": 4}}
        assert cluster.plane.request("PATCH", path, body, content_type=MERGE)[0] == 200
        ends = platform.poll(handle)
    assert isinstance(ends, Superseded), ends
    left = [one["metadata"] for one in cluster.pods("chat")]
    assert [one["labels"][SERVING] for one in left] == ["true"] * len(left)
    assert not [note for one in left for note in one.get("annotations", {}) if note in (COST, saga.MARK)]
    cluster.until(lambda: len(endpoints(cluster)) == 3, "all serve again")


def test_a_newer_decision_gives_back_what_it_leaves(cluster: Cluster) -> None:
    deploy(cluster, 4, **{SERVING: "true"})
    platform = cluster.platform()
    with cluster.plane.controllers_paused():
        begun(platform, less("first", after=1))
        handle = begun(cluster.platform(), less("second", after=3))
        draining = [one for one in cluster.pods("chat") if one["metadata"]["labels"][SERVING] == "draining"]
        assert [one["metadata"]["annotations"][saga.MARK] for one in draining] == ["second"]
    assert isinstance(ended(platform, handle), Done)
    cluster.until(lambda: len(endpoints(cluster)) == 3, "the others serve")


def test_a_pod_without_the_label_goes_by_its_own_grace(cluster: Cluster) -> None:
    path = deploy(cluster, 2)
    handle = begun(cluster.platform(), less(before=2, after=1))
    assert "from 2 to 1 replicas" in handle.answer
    assert cluster.plane.get(path)["spec"]["replicas"] == 1
    assert isinstance(ended(cluster.platform(), handle), Done)


def test_all_replicas_of_a_preemption_lose_their_load_first(cluster: Cluster) -> None:
    deploy(cluster, 3, **{SERVING: "true"})
    stop = preempt("stop", before=3, after=1, checkpoint=False, time_ns=time.time_ns())
    with cluster.plane.controllers_paused():
        handle = begun(cluster.platform(), stop)
        assert "load is taken off" in handle.answer
    assert isinstance(ended(cluster.platform(), handle), Done)


def test_what_did_not_start_is_taken_back(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(count, "START_S", 3.0)
    cluster.deploy("chat", 1, gpus=8, workload="chat")
    path = cluster.deployments("chat")
    cluster.ready(path, 1)
    platform, more = cluster.platform(), scale("more", before=1, after=6, time_ns=time.time_ns())
    handle = begun(platform, more)  # there is room for four
    failed = ended(platform, handle)
    assert isinstance(failed, Failed), failed
    assert "4 of 6 replicas ready" in failed.answer
    assert "set back to 4 replicas (audit id" in failed.answer, "those that are ready stay"
    assert failed.observed is not None
    assert (failed.observed.replicas, failed.observed.ready) == (4, 4)
    assert cluster.plane.get(path)["spec"]["replicas"] == 4
    found = cluster.platform().find(more, None)  # the actuator died before it said so
    assert isinstance(found, Handle)
    told = cluster.platform().poll(found)
    assert isinstance(told, Failed), told
    assert "it was set back to 4 replicas" in told.answer
    assert told.observed is not None
    assert told.observed.replicas == 4


def test_a_start_from_none_is_whole_or_not_at_all(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(count, "START_S", 2.0)
    cluster.job("train", 6, gpus=8, workload="train")
    suspend = {"spec": {"suspend": True}}
    assert cluster.plane.request("PATCH", cluster.jobs("train"), suspend, content_type=MERGE)[0] == 200
    cluster.until(lambda: not cluster.pods(), "it is suspended")
    start = scale("start", workload="train", before=0, after=6, time_ns=time.time_ns())
    failed = ended(cluster.platform(), begun(cluster.platform(), start))
    assert isinstance(failed, Failed), failed
    assert "set back to 0 replicas" in failed.answer
    cluster.until(lambda: not cluster.pods(), "it holds no GPU")


def test_a_number_of_somebody_else_is_not_taken_back(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(count, "START_S", 2.0)
    cluster.deploy("chat", 1, gpus=8, workload="chat")
    path = cluster.deployments("chat")
    cluster.ready(path, 1)
    platform = cluster.platform()
    handle = begun(platform, scale("more", before=1, after=6, time_ns=time.time_ns()))
    for replicas in (5, 6):  # the same number, and another's
        body = {"spec": {"replicas": replicas}}
        status, _ = cluster.plane.request("PATCH", f"{path}?fieldManager=ann", body, content_type=MERGE)
        assert status == 200
    failed = ended(platform, handle)
    assert isinstance(failed, Failed), failed
    assert "not this decision's any more, and stays" in failed.answer
    assert cluster.plane.get(path)["spec"]["replicas"] == 6


def test_the_annotation_turns_it_off(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(count, "START_S", 0.5)
    cluster.deploy("chat", 1, gpus=8, workload="chat")
    path = cluster.deployments("chat")
    body = {"metadata": {"annotations": {undo.ROLLBACK: "false"}}}
    assert cluster.plane.request("PATCH", path, body, content_type=MERGE)[0] == 200
    cluster.ready(path, 1)
    platform = cluster.platform()
    handle = begun(platform, scale("more", before=1, after=6, time_ns=time.time_ns()))
    cluster.ready(path, 4)
    failed = ended(platform, handle)
    assert isinstance(failed, Failed), failed
    assert "set back" not in failed.answer
    assert cluster.plane.get(path)["spec"]["replicas"] == 6


def test_a_dry_run_takes_no_load_off(cluster: Cluster) -> None:
    deploy(cluster, 2, **{SERVING: "true"})
    plan = submitted(cluster.platform(), less(before=2, after=1), dry_run=True)
    assert not isinstance(plan, Rejected)
    assert "would be set from 2 to 1" in plan.answer
    assert [one["metadata"]["labels"][SERVING] for one in cluster.pods("chat")] == ["true"] * 2
