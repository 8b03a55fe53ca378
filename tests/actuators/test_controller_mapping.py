"""What the controller makes of nodes, pods, annotations and policies, without a server."""

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from flyball_actuators.controller.homes import homes_of
from flyball_actuators.controller.nodes import devices_of, node_of
from flyball_actuators.controller.pods import Pod, WorkloadNames, allocations_of, gpu_requests_of, pod_of
from flyball_actuators.controller.policies import plan, policy_of
from flyball_actuators.controller.taints import is_for_any, tolerations_of
from flyball_actuators.controller.workloads import SIZES, Declared, declared_by, spec_of
from flyball_actuators.platforms.kubernetes.api import Answer
from flyball_actuators.platforms.kubernetes.names import read_names
from flyball_contracts.declared.names import NAMES_PATH
from flyball_contracts.nodes.kubernetes import Taint
from flyball_contracts.records import Inventory, WorkloadSpec

GPU = "nvidia.com/gpu"
PROFILES = ("1g.10gb", "2g.20gb", "3g.40gb", "7g.80gb")
H100 = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.memory": "81559"}


def node(labels: dict[str, str] | None = None, spec: Any = None, **room: str) -> Inventory:
    status = {"capacity": {"cpu": "64", "memory": "512Gi", **room}, "allocatable": room}
    metadata = {"name": "n1", "labels": labels or {}}
    return node_of({"metadata": metadata, "spec": spec or {}, "status": status}, "eu-1").inventory


def pod(name: str, requests: dict[str, int], created: str = "2026-01-01T00:00:00Z") -> Pod:
    return Pod("ml", name, f"uid-{name}", "n1", created, "chat", ("Deployment", "ml", "chat"), tuple(requests.items()))


def deployment(
    annotations: dict[str, str], replicas: int = 2, name: str = "chat", namespace: str = "ml", **labels: str
) -> Declared:
    containers = [{"resources": {"limits": {GPU: "2"}}}]
    found = declared_by("Deployment")(
        {
            "metadata": {
                "name": name,
                "namespace": namespace,
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "labels": labels,
                "annotations": {f"flyball.dev/{key}": value for key, value in annotations.items()},
            },
            "spec": {"replicas": replicas, "template": {"spec": {"containers": containers}}},
        }
    )
    assert found is not None
    return found


def policy(kind: str, name: str, second: int = 0, **spec: Any) -> Any:
    made = f"2026-01-01T00:00:{second:02}Z"
    metadata = {"name": name, "namespace": "ml", "creationTimestamp": made, "generation": 1}
    return policy_of({"kind": kind, "metadata": metadata, "spec": spec})


CHAT = {"kind": "Deployment", "name": "chat"}


def test_a_node_is_what_its_labels_say() -> None:
    found = node(
        {
            **H100,
            "topology.kubernetes.io/region": "eu-west-1",
            "topology.kubernetes.io/zone": "eu-west-1a",
            "flyball.dev/zone": "IE",
            "flyball.dev/rack": "r7",
            "network.topology.nvidia.com/leaf": "s3",
            "node.kubernetes.io/instance-type": "p5.48xlarge",
            "karpenter.sh/capacity-type": "spot",
            "nvidia.com/cuda.driver.major": "570",
            "nvidia.com/cuda.driver.minor": "86",
        },
        {"providerID": "aws:///eu-west-1a/i-1", "taints": [{"key": GPU, "effect": "NoSchedule"}]},
        **{GPU: "8"},
    )
    assert (found.provider, found.region, found.availability_zone, found.zone) == (
        "aws",
        "eu-west-1",
        "eu-west-1a",
        "IE",
    )
    assert (found.rack, found.leaf) == ("r7", "s3")
    assert (found.instance_type, found.capacity_type, found.driver_version) == ("p5.48xlarge", "spot", "570.86")
    assert (found.cpu_count, found.memory_bytes, found.schedulable) == (64, 512 << 30, True)
    assert {(gpu.model, gpu.memory_bytes) for gpu in found.devices} == {("NVIDIA-H100-80GB-HBM3", 81559 << 20)}


def test_a_declared_name_belongs_to_pods_of_its_namespace() -> None:
    declared = {("Deployment", "ml", "server"): "chat", ("Deployment", "web", "page"): "web/page"}
    names = WorkloadNames(declared, {"chat": "ml", "web/page": "web"})
    mine, other = pod("a", {}), pod("b", {})._replace(namespace="web", owner=("Deployment", "web", "page"))
    assert names.of(mine) == "chat"
    assert names.of(other) == "web/page", "a pod of web claims a workload of ml"
    assert names.of(other._replace(workload="free")) == "free", "no object declares it"


def test_a_closed_node_takes_nothing() -> None:
    assert not node(None, {"unschedulable": True}, **{GPU: "1"}).schedulable


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        ({"operator": "Exists"}, True),
        ({"key": "sku", "operator": "Exists"}, True),
        ({"key": "sku", "operator": "Exists", "effect": "NoSchedule"}, True),
        ({"key": "sku", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "sku", "value": "gpu"}, True),
        ({"key": "sku", "operator": "Equal", "value": "cpu"}, False),
        ({"key": "sku"}, False),
        ({"key": "team", "operator": "Exists"}, False),
        ({}, False),
    ],
)
def test_a_node_is_reserved_for_pods_that_tolerate_its_taint(toleration: dict[str, str], tolerated: bool) -> None:
    taints = (Taint(key="sku", value="gpu", effect="NoSchedule"),)
    template = {"spec": {"containers": [], "tolerations": [toleration]}}
    deployment = {"spec": {"template": template}}
    job_set = {"spec": {"replicatedJobs": [{"template": {"spec": {"template": template}}}]}}
    for obj in (deployment, job_set):
        assert is_for_any(taints, [frozenset(), tolerations_of(obj)]) is tolerated
    assert is_for_any((), []), "no taint reserves it"
    assert not is_for_any(taints, []), "no workload is declared"
    two = (*taints, Taint(key="team", value="a", effect="NoExecute"))
    team = tolerations_of(
        {"spec": {"tolerations": [{"key": "team", "operator": "Exists"}, {"key": "sku", "value": "gpu"}]}}
    )
    assert is_for_any(two, [team])
    assert not is_for_any(two, [frozenset({one}) for one in team]), "each workload tolerates one of two"
    assert tolerations_of({}) == frozenset()


def test_a_gpu_that_is_withheld_takes_nothing() -> None:
    found = devices_of("n1", H100, {GPU: "8"}, {GPU: "7"})
    assert [gpu.schedulable for gpu in found] == [True] * 7 + [False]


def test_gpus_that_are_all_divided_alike_are_instances() -> None:
    labels = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB-MIG-1g.10gb", "nvidia.com/gpu.count": "2"}
    found = devices_of("n1", labels, {GPU: "14"}, {GPU: "14"})
    assert sum(one.mig_enabled for one in found) == 2
    assert [one.mig_profile for one in found if one.parent] == ["1g.10gb"] * 14
    assert {one.model for one in found} == {"NVIDIA-A100-SXM4-80GB"}


def test_gpus_that_are_shared_in_time_are_counted_once() -> None:
    by_time = devices_of("n1", {**H100, "nvidia.com/gpu.count": "2"}, {GPU: "8"}, {GPU: "8"})
    assert [gpu.shared for gpu in by_time] == [True, True]
    mps = devices_of("n1", {**H100, "nvidia.com/gpu.sharing-strategy": "mps"}, {GPU: "2"}, {GPU: "2"})
    assert [gpu.shared for gpu in mps] == [True, True]
    plain = {**H100, "nvidia.com/gpu.count": "2", "nvidia.com/gpu.sharing-strategy": "none"}
    assert not any(gpu.shared for gpu in devices_of("n1", plain, {GPU: "2"}, {GPU: "2"}))


@given(st.integers(0, 8), st.dictionaries(st.sampled_from(PROFILES), st.integers(0, 9)))
def test_every_instance_has_a_gpu_with_room_for_it(whole: int, instances: dict[str, int]) -> None:
    room = {GPU: str(whole), **{f"nvidia.com/mig-{profile}": str(count) for profile, count in instances.items()}}
    found = devices_of("n1", H100, room, room)
    assert len({one.id for one in found}) == len(found)
    assert sum(one.mig_profile is None and not one.mig_enabled for one in found) == whole
    slices: dict[str, int] = {one.id: 0 for one in found if one.mig_enabled}
    for one in found:
        if one.parent is not None and one.mig_profile is not None:
            slices[one.parent] += int(one.mig_profile[0])
    assert all(0 < count <= 7 for count in slices.values())
    for profile, count in instances.items():
        assert sum(one.mig_profile == profile for one in found) == count


requests = st.dictionaries(st.sampled_from((GPU, "nvidia.com/mig-1g.10gb")), st.integers(1, 4))


@given(st.lists(requests, max_size=8), st.lists(requests, max_size=4), st.data())
def test_pods_keep_their_devices_and_share_none_while_there_is_room(
    first: list[dict[str, int]], later: list[dict[str, int]], data: st.DataObject
) -> None:
    machine = node(H100, None, **{GPU: "40", "nvidia.com/mig-1g.10gb": "48"})
    pods = [(pod(f"a{i}", one), "chat") for i, one in enumerate(first)]
    before = allocations_of(machine, pods, ())
    stay = [one for one in pods if data.draw(st.booleans())]
    after = allocations_of(machine, [*stay, *((pod(f"b{i}", one), "chat") for i, one in enumerate(later))], before)
    had = {one.replica: one.devices for one in before}
    for one in after:
        if one.replica in had:
            assert one.devices == had[one.replica]
    used = [row for one in after for row in one.devices]
    assert len(used) == len(set(used))
    wanted = {f"a{i}": one for i, one in enumerate(first)} | {f"b{i}": one for i, one in enumerate(later)}
    for one in after:
        parts = sum(machine.devices[row].mig_profile is not None for row in one.devices)
        requests = wanted[one.replica]
        assert (len(one.devices) - parts, parts) == (requests.get(GPU, 0), requests.get("nvidia.com/mig-1g.10gb", 0))


def container(count: int, **more: Any) -> Any:
    return {"resources": {"requests": {GPU: str(count)}, "limits": {GPU: str(count)}}, **more}


@given(st.lists(st.integers(0, 8)), st.lists(st.tuples(st.integers(0, 8), st.booleans())))
def test_a_pod_asks_for_what_it_needs_at_most_at_once(main: list[int], before: list[tuple[int, bool]]) -> None:
    first = [container(count, **({"restartPolicy": "Always"} if stays else {})) for count, stays in before]
    found = gpu_requests_of({"containers": [container(count) for count in main], "initContainers": first}).get(GPU, 0)
    stay, most = 0, 0
    for count, stays in before:
        most = max(most, stay + count)
        stay += count if stays else 0
    assert found == max(most, stay + sum(main))


def test_a_pod_belongs_to_what_commands_it() -> None:
    owner = {"kind": "ReplicaSet", "name": "chat-abc12", "controller": True}
    metadata: Any = {"name": "chat-abc12-x", "namespace": "ml", "uid": "u", "ownerReferences": [owner]}
    metadata |= {"labels": {"pod-template-hash": "abc12"}}
    running = {"metadata": metadata, "spec": {"nodeName": "n1"}, "status": {"phase": "Running"}}
    found = pod_of(running)
    assert found is not None
    assert found.owner == ("Deployment", "ml", "chat")
    assert pod_of({**running, "status": {"phase": "Succeeded"}}) is None
    assert pod_of({**running, "spec": {}}) is None


TEMPLATE = {"spec": {"containers": [container(4)]}}


@pytest.mark.parametrize(
    ("kind", "spec", "size"),
    [
        ("Job", {"parallelism": 3, "suspend": True, "template": TEMPLATE}, (4.0, 3)),
        (
            "LeaderWorkerSet",
            {"replicas": 2, "leaderWorkerTemplate": {"size": 3, "workerTemplate": TEMPLATE}},
            (12.0, 2),
        ),
        (
            "JobSet",
            {"replicatedJobs": [{"replicas": 2, "template": {"spec": {"parallelism": 2, "template": TEMPLATE}}}]},
            (8.0, 2),
        ),
        ("TrainJob", {"trainer": {"numNodes": 4, "resourcesPerNode": container(8)["resources"]}}, (8.0, 4)),
        ("VolcanoJob", {"tasks": [{"replicas": 3, "template": TEMPLATE}, {"template": TEMPLATE}]}, (4.0, 4)),
        ("InferenceService", {"predictor": {"minReplicas": 2, "model": container(1)}}, (1.0, 2)),
    ],
)
def test_a_replica_of_each_kind_has_its_gpus(kind: str, spec: Any, size: tuple[float, int]) -> None:
    assert SIZES[kind]({"spec": spec}) == size


def test_without_limits_the_number_stays_as_it_is() -> None:
    spec = spec_of(deployment({"workload": "chat"}, replicas=3), (), "eu-1")
    assert (spec.min_replicas, spec.max_replicas, spec.gpus_per_replica, spec.tenant) == (3, 3, 2.0, "ml")


@pytest.mark.parametrize(
    ("annotations", "words"),
    [
        ({"min-replica": "2"}, "did you mean flyball.dev/min-replicas?"),
        ({"max-replicas": "many"}, "max_replicas"),
        ({"min-replicas": "5", "max-replicas": "2"}, "lower it, or raise max_replicas"),
        ({"kind": "service"}, "kind"),
        ({"deadline": "8h"}, "it needs duration_s"),
        ({"deadline": "soon", "duration-s": "60"}, "is no deadline"),
        ({"objective": "{delay_s: "}, "no YAML"),
        ({"objective": "[" * 3000}, "no YAML"),
        ({"objective": "[!!int '']"}, "no YAML"),
        ({"objective": "[!!timestamp x]"}, "no YAML"),
        ({"objective": "{delay: 2}"}, "objective"),
        ({"interruptible": "true"}, "interruptible needs limits of the replicas"),
        ({"restart-hung-after-s": "300"}, "restart_hung_after_s needs limits of the replicas"),
        ({"tenant": "other"}, "tenant is not known"),
    ],
)
def test_a_wrong_annotation_is_named_and_holds_the_workload(annotations: dict[str, str], words: str) -> None:
    found = plan([deployment({"workload": "chat", **annotations})], [], "eu-1", {})
    assert found.specs == {}
    assert words in found.rejected["chat"]


def test_a_deadline_counts_from_the_objects_creation() -> None:
    annotations = {"workload": "chat", "deadline": "8h", "duration-s": "60"}
    spec = spec_of(deployment(annotations), (), "eu-1")
    assert spec.deadline_ns == (1_767_225_600 + 8 * 3600) * 10**9


def test_of_two_policies_the_older_counts_and_the_other_says_so() -> None:
    old, new = (policy("WorkloadPolicy", name, i, targetRef=CHAT, maxReplicas=i + 5) for i, name in enumerate("ba"))
    found = plan([deployment({})], [new, old], "eu-1", {})
    assert found.specs["ml/chat"].max_replicas == 5
    assert found.verdicts[old.path].accepted
    assert (found.verdicts[new.path].reason, "WorkloadPolicy b" in found.verdicts[new.path].message) == (
        "Conflicted",
        True,
    )


def test_a_workload_that_two_objects_claim_is_held() -> None:
    found = plan([deployment({"workload": "x"}), deployment({"workload": "x"}, name="other")], [], "eu-1", {})
    assert (found.specs, list(found.rejected)) == ({}, ["x"])


def test_nobody_holds_up_a_workload_of_another_namespace_by_its_name() -> None:
    governed = [policy("WorkloadPolicy", "own", targetRef=CHAT, maxReplicas=4)]
    found = plan([deployment({}), deployment({"workload": "ml/chat"}, namespace="web")], governed, "eu-1", {})
    assert (list(found.specs), list(found.rejected)) == (["ml/chat"], ["web/chat"])
    assert found.rejected["web/chat"] == (
        "flyball.dev/workload is 'ml/chat', of namespace 'ml'; only objects of ml may have that name: "
        "choose one without '/'"
    )


def test_a_policy_on_an_object_with_a_foreign_name_says_what_is_wrong_with_it() -> None:
    governed = policy("WorkloadPolicy", "own", targetRef=CHAT, maxReplicas=4)
    found = plan([deployment({"workload": "meta-llama/Llama-3-8B"})], [governed], "eu-1", {})
    assert found.specs == {}
    verdict = found.verdicts[governed.path]
    assert (verdict.accepted, "only objects of meta-llama may have that name" in verdict.message) == (False, True)


@pytest.mark.parametrize("last", ["ml", "web"])
def test_a_name_belongs_to_the_namespace_that_declared_it_first(last: str) -> None:
    first, rival = sorted(
        (deployment({"workload": "x", "max-replicas": "7"}, namespace=space) for space in ("ml", "web")),
        key=lambda one: one.namespace == last,
    )
    rival = rival._replace(created_ns=rival.created_ns + 1)
    governed = policy("WorkloadPolicy", "own", targetRef=CHAT, priority=9)
    found = plan([rival, first], [governed], "eu-1", {})
    assert found.homes == {"x": first.namespace}
    assert (found.specs["x"].tenant, found.rejected) == (first.namespace, {})
    told = f"workload x belongs to namespace {first.namespace}, which declared it first; choose another name in "
    assert [problem.startswith(told) for problem in found.strangers.values()] == [True]
    assert found.verdicts[governed.path].accepted is (last == "web")
    alone = plan([rival], [], "eu-1", found.specs)
    assert (alone.homes, alone.specs["x"].tenant, alone.strangers) == ({"x": last}, last, {})
    then = plan([rival, first], [], "eu-1", alone.specs)
    assert then.homes == {"x": last}, "who has it keeps it, whichever object is older"


def test_an_object_may_be_called_by_its_own_namespace() -> None:
    assert list(plan([deployment({"workload": "ml/talk"})], [], "eu-1", {}).specs) == ["ml/talk"]


@pytest.mark.parametrize(("given", "workload"), [("ml/chat", ""), ("web/chat", "web/chat"), ("chat", "chat"), ("", "")])
def test_a_pod_has_no_workload_of_another_namespace(given: str, workload: str) -> None:
    metadata = {"namespace": "web", "name": "p", "uid": "u", "annotations": {"flyball.dev/workload": given}}
    found = pod_of({"metadata": metadata, "spec": {"nodeName": "n1", "containers": []}})
    assert found is not None
    assert found.workload == workload


def test_a_carbon_policy_selects_by_labels_and_gives_way_to_a_workload_policy() -> None:
    green = policy(
        "CarbonPolicy", "green", selector={"matchLabels": {"team": "a"}}, deadline="8h", durationSeconds=60,
        checkpointSeconds=5,
    )  # fmt: skip
    own = policy("WorkloadPolicy", "own", targetRef=CHAT, maxReplicas=2, checkpointSeconds=9)
    objects = [deployment({}, team="a"), deployment({"workload": "other"}, name="other")]
    found = plan(objects, [green, own], "eu-1", {})
    chat, other = found.specs["ml/chat"], found.specs["other"]
    assert (chat.interruptible, chat.duration_s, chat.checkpoint_s, other.interruptible) == (True, 60.0, 9.0, False)
    assert found.verdicts[green.path].workloads == ("ml/chat",)


@given(st.permutations(range(3)))
def test_the_order_of_lists_changes_nothing(order: list[int]) -> None:
    made = [policy("WorkloadPolicy", name, 3, targetRef=CHAT, maxReplicas=i + 2) for i, name in enumerate("abc")]
    found = plan([deployment({})], [made[i] for i in order], "eu-1", {})
    assert found.specs["ml/chat"].max_replicas == 2
    assert msgspec.structs.asdict(found.specs["ml/chat"])["time_ns"] == 0


def test_a_name_that_only_pods_bear_belongs_to_who_bore_it_first() -> None:
    older, younger = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
    mine = [pod(name, {}, created=older) for name in ("a", "b")]
    other = [one._replace(namespace="web", created=younger) for one in mine]
    found = homes_of({}, [*other, *mine], {}, {})
    assert found.homes == {"chat": "ml"}
    told = "workload chat belongs to namespace ml; choose another name in flyball.dev/workload"
    assert found.strangers == {"pods of namespace web that bear chat": told}
    renewed = [one._replace(created="2026-01-03T00:00:00Z") for one in mine]
    assert homes_of({}, [*other, *renewed], {"chat": ("ml",)}, {}).homes == {"chat": "ml"}, "its pods were replaced"
    assert homes_of({}, other, {"chat": ("ml",)}, {}).homes == {"chat": "web"}, "no pod of ml bears it any more"
    spec = WorkloadSpec(workload="chat", cell="eu-1", time_ns=1, kind="inference", tenant="web")
    assert homes_of({}, [*mine, *other], {"chat": ("ml",)}, {"chat": spec}).homes == {"chat": "web"}
    gone = msgspec.structs.replace(spec, removed=True)
    assert homes_of({}, [*mine, *other], {"chat": ("ml",)}, {"chat": gone}).homes == {"chat": "ml"}
    assert homes_of({"chat": "dev"}, mine, {}, {"chat": spec}).homes == {"chat": "dev"}, "an object declares it"
    assert homes_of({}, [mine[0]._replace(workload="ml/x"), mine[0]._replace(workload="")], {}, {}).homes == {}


@pytest.mark.parametrize(("status", "warned"), [(404, False), (403, True)])
def test_names_that_may_not_be_read_are_told_and_none_are_known(
    status: int, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    refused = Answer(status, {"message": "workloadnames is forbidden"}, "")
    api: Any = SimpleNamespace(get={NAMES_PATH: refused}.__getitem__)
    assert read_names(api) == {}
    told = "workloadnames is forbidden; infra/kubernetes/controller.yaml grants it"
    assert [record.getMessage() for record in caplog.records] == [told] * warned
