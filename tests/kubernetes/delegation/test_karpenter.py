"""Driver karpenter with Karpenter itself: what it does is judged by the machines that Karpenter buys and returns."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.actuators.carry_out import carried_out, ended, submitted
from tests.actuators.loop import PARTITIONS, config_for, ended as all_ended, of, publish, running, without_effect
from tests.actuators.rows import observed_row
from tests.actuators.samples import scale, spec
from tests.brokers.embedded import EmbeddedBroker
from tests.faults.testbed import wait_until
from tests.kubernetes.cluster import DEADLINE_S, Cluster
from tests.kubernetes.controlplane import ACTUATOR, ControlPlane
from tests.kubernetes.delegation.karpenter import RIGHTS, Karpenter, Machines, karpenter_folder
from tests.kubernetes.test_rights import Right, right_of

from flyball_actuators.platforms import Done, Failed, Handle, Rejected, Running, Superseded
from flyball_actuators.platforms.karpenter import KarpenterPlatform, SpecLookup
from flyball_contracts.records import Scale, WorkloadSpec

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def karpenter(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Karpenter]:
    folder = karpenter_folder()
    if folder is None:
        pytest.skip("no Karpenter; run infra/karpenter/fetch")
    made = Karpenter(control_plane, folder, tmp_path_factory.mktemp("karpenter"))
    yield made
    made.close()


@pytest.fixture
def machines(karpenter: Karpenter) -> Iterator[Machines]:
    cluster = Cluster(karpenter.plane)
    made = Machines(cluster)
    paths = [made.path, f"/api/v1/namespaces/{made.name}/pods"]
    cluster.until(
        lambda: all(karpenter.plane.request("GET", path, token=ACTUATOR)[0] == 200 for path in paths), "roles are bound"
    )
    yield made
    made.remove()
    cluster.remove()


def pool(id_: str, before: int, after: int) -> Scale:
    return scale(id_, workload="pool:gpu", before=before, after=after, time_ns=time.time_ns())


def platform_of(machines: Machines, declared: SpecLookup = lambda _: None, **changes: Any) -> KarpenterPlatform:
    return KarpenterPlatform(machines.configuration(**changes), "platform", declared)


def test_karpenter_buys_and_returns_under_the_limits_that_are_decided(machines: Machines) -> None:
    cluster, platform = machines.cluster, platform_of(machines)
    machines.deploy(3)
    planned = submitted(platform, pool("plan", 0, 2), dry_run=True)
    assert isinstance(planned, Handle), planned
    assert "would be limited to nvidia.com/gpu=16" in planned.answer
    assert cluster.plane.get(machines.path)["spec"]["limits"]["nvidia.com/gpu"] == "0"
    done = carried_out(platform, grow := pool("grow", 0, 2))
    assert isinstance(done, Done), done
    assert done.observed.replicas == 2
    cluster.until(lambda: machines.ready() == 2, "two of three pods have a machine")
    assert len(machines.claims()) == 2
    cluster.until(lambda: "replicas=2, ready=2" in str(platform.observe(grow)), "both machines are ready")
    assert platform_of(machines).find(grow, None) is not None  # as the next process has it
    machines.deploy(1)
    cluster.until(lambda: len(cluster.pods("train")) == 1, "one pod goes")
    handle = submitted(platform, pool("shrink", 2, 1))
    assert isinstance(handle, Handle), handle
    waits = platform.poll(handle)
    assert isinstance(waits, Running), waits
    assert "1 machines beyond its limits: Karpenter returns them" in waits.answer
    machines.drop_idle()
    shrunk = ended(platform, handle)
    assert isinstance(shrunk, Done), shrunk
    assert (shrunk.observed.replicas, machines.ready()) == (1, 1)


def test_what_holds_machines_is_said_and_others_limits_end_it(machines: Machines) -> None:
    cluster, platform = machines.cluster, platform_of(machines)
    machines.deploy(1)
    machines.set({"disruption": {"budgets": [{"nodes": "0"}]}}, "test")
    assert isinstance(carried_out(platform, pool("grow", 0, 1)), Done)
    cluster.until(lambda: machines.ready() == 1, "it runs")
    machines.deploy(0)
    handle = submitted(platform, pool("shrink", 1, 0))
    assert isinstance(handle, Handle), handle
    assert "its disruption budget allows 0 nodes" in str(platform.poll(handle))
    machines.set({"limits": {"nvidia.com/gpu": "24"}})
    last = platform.poll(handle)
    assert isinstance(last, Superseded), last
    assert "'somebody'" in last.answer
    lost = platform.find(pool("lost", 1, 2), None)
    assert lost is not None
    assert isinstance(platform.poll(lost), Failed)
    machines.set({"disruption": {"budgets": [{"nodes": "100%"}]}})


def test_a_pod_that_must_stay_keeps_its_machine(machines: Machines) -> None:
    cluster = machines.cluster
    declared: dict[str, WorkloadSpec] = {
        "train": msgspec.structs.replace(spec("train", interruptible=False), kind="training")
    }
    platform = platform_of(machines, declared.get, keep_pods=True)
    try:
        machines.deploy(1)
        assert isinstance(carried_out(platform, pool("grow", 0, 1)), Done)
        cluster.until(lambda: machines.ready() == 1, "it runs")

        def kept() -> str:
            (one,) = cluster.pods("train")
            notes: dict[str, str] = one["metadata"]["annotations"]
            return f"{notes.get('karpenter.sh/do-not-disrupt')}: {notes.get('flyball.dev/kept')}"

        cluster.until(lambda: kept() == "true: it cannot be interrupted", "it is kept")
        declared["train"] = spec("train")
        cluster.until(lambda: kept() == "None: None", "it is let go")
    finally:
        platform.close()


def test_what_cannot_be_limited_is_refused_and_says_why(machines: Machines) -> None:
    answer = platform_of(machines, per_machine={"amd.com/gpu": 8.0}).observe(pool("grow", 0, 1))
    assert isinstance(answer, Rejected), answer
    assert "has no limit of amd.com/gpu" in answer.detail
    lost = msgspec.structs.replace(pool("grow", 0, 1), workload="pool:other")
    assert isinstance(platform_of(machines).observe(lost), Rejected)


def test_from_a_decision_on_the_topic_to_a_verified_outcome_and_no_more_rights_than_calls(
    machines: Machines, embedded_broker: Callable[..., EmbeddedBroker], tmp_path: Path
) -> None:
    bootstrap = embedded_broker(PARTITIONS).bootstrap
    machines.deploy(1)
    config = config_for(
        bootstrap, "limits", mode="live", ledger=str(tmp_path / "ledger"),
        platforms=(machines.configuration(keep_pods=True),), allow=("train", "pool:gpu"),
        kill_switch=str(tmp_path / "stop"),
    )  # fmt: skip
    cluster = machines.cluster
    whole = msgspec.structs.replace(spec("train", interruptible=False), kind="training")
    before = cluster.plane.get(machines.path)
    with running(without_effect(config), clock=time.time_ns):
        publish(bootstrap, whole, pool("plan", 0, 1))
        wait_until(all_ended(bootstrap, 1), "it is planned", DEADLINE_S)
    assert cluster.plane.get(machines.path)["metadata"]["generation"] == before["metadata"]["generation"]
    with running(config, clock=time.time_ns):
        publish(bootstrap, pool("grow", 0, 1))
        wait_until(all_ended(bootstrap, 2), "the final outcome", DEADLINE_S)
        cluster.until(lambda: machines.ready() == 1, "it runs")
        cluster.until(lambda: "flyball.dev/kept" in cluster.pods("train")[0]["metadata"]["annotations"], "it is kept")
    assert of(bootstrap, "grow", "done").driver == "karpenter"
    row = observed_row(bootstrap, "karpenter")
    assert (row.verbs, row.planned) == ({"Scale": (1, 1)}, 1)
    granted: set[Right] = {
        (group, resource, verb)
        for document in RIGHTS
        if document["kind"] == "ClusterRole"
        for rule in document["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    calls = [call["objectRef"] | {"verb": call["verb"]} for call in cluster.plane.calls()]
    mine = [
        call for call in calls if call.get("namespace") == cluster.namespace or call.get("apiGroup") == "karpenter.sh"
    ]
    assert {right_of(call) for call in mine} == granted
