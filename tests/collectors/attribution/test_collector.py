"""The collector on trees of pods and jobs, with devices that the tests set."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from tests.collectors.attribution.cgroup_tree import CONTAINER, UIDS, CgroupTree, remove

from flyball_collectors.attribution import AttributionCollector
from flyball_collectors.attribution.gpus import part_of
from flyball_collectors.base import KeyedReading, Parts, Reading
from flyball_collectors.nvml.readings.processes import Process
from flyball_collectors.parameters import AttributionParameters
from flyball_contracts.config.attribution import NamingRule
from flyball_contracts.metrics import GPU, GPU_SHARE, USAGE
from flyball_contracts.records import Allocation, Device, NodeEvent

S = 1_000_000_000
NAN = float("nan")
GIB = float(1 << 30)
JOB = "/system.slice/slurmstepd.scope/job_7"
CHAT, SHOP = "chat-7c9bdf6d5b-x2x7k", "shop-0"


class FakeGpus:
    """Devices as the NVML collector shows them: 300 W, 20 of 80 GiB in use, busy for a part of each second."""

    def __init__(self, *busy: float) -> None:
        self.devices = tuple(
            Device(id=f"GPU-{i}", model="H100", memory_bytes=80 << 30, index=i) for i in range(len(busy))
        )
        self.values = np.full((len(busy), len(GPU)), np.nan, np.float32)
        self.set("hw.energy", [300.0] * len(busy))
        self.set("hw.gpu.memory.usage", [20 * GIB] * len(busy))
        self.set("hw.gpu.memory.limit", [80 * GIB] * len(busy))
        self.set("nvidia.gpu.busy.time", busy)
        self.running: list[Process] = []
        self.answers = True

    def set(self, key: str, values: Sequence[float]) -> None:
        self.values[:, GPU.column(key)] = values

    @property
    def latest(self) -> Reading | None:
        return Reading(GPU.schema, self.values) if self.answers else None

    def parts(self) -> Parts:
        return Parts(devices=self.devices)

    def processes(self) -> list[Process]:
        return self.running


class Reported:
    """A collector that knows a pod by another name."""

    name = "reported"

    def read(self, now_ns: int, period_ns: int) -> Sequence[Reading | KeyedReading]:
        return []

    def parts(self) -> Parts:
        return Parts(allocations=(Allocation(workload="assistant", replica=CHAT, labels={"uid": UIDS[0]}),))

    def events(self) -> list[NodeEvent]:
        return []

    def close(self) -> None:
        pass


class Seen:
    """One read: rows by (workload, replica), shares by device, and the allocations."""

    def __init__(self, collector: AttributionCollector) -> None:
        self.usage: dict[tuple[str, str], Mapping[str, float]] = {}
        self.shares: list[Mapping[str, float]] = []
        for reading in collector.read(S, S):
            if isinstance(reading, KeyedReading):
                assert reading.schema == USAGE.schema
                for key, row in reading.rows.items():
                    assert row.shape == (len(USAGE),)
                    assert row.dtype == np.float32
                    self.usage[key] = dict(zip(USAGE.columns, row.tolist(), strict=True))
            else:
                assert reading.schema == GPU_SHARE.schema
                self.shares = [dict(zip(GPU_SHARE.columns, row.tolist(), strict=True)) for row in reading.values]
        self.allocations = {(a.workload, a.replica): a for a in collector.parts().allocations}
        assert self.usage.keys() == self.allocations.keys()

    def sm(self, row: int = 0) -> list[float]:
        return [
            self.shares[row][f"nvidia.gpu.share.sm.time{{part={p}}}"] for p in ("attributed", "unattributed", "idle")
        ]

    def energy(self, row: int = 0) -> list[float]:
        return [
            self.shares[row][f"nvidia.gpu.share.energy{{part={p}}}"] for p in ("attributed", "unattributed", "idle")
        ]


@pytest.fixture
def tree(tmp_path: Path) -> CgroupTree:
    tree = CgroupTree(tmp_path)
    tree.pod(0, f"ml_{CHAT}")
    tree.pod(1, f"web_{SHOP}")
    tree.group(f"{JOB}")
    tree.process(10, f"{tree.pod_path(0)}/cri-containerd-{CONTAINER}.scope")
    tree.process(20, f"{JOB}/step_0/user/task_0")
    return tree


def opened(tree: CgroupTree, gpus: FakeGpus | None = None, **changes: Any) -> AttributionCollector:
    settings = msgspec.structs.replace(AttributionParameters(usage_period_s=1.0, without_devices=True), **changes)
    collector = AttributionCollector(settings, "n1", tree.root)
    collector.attach(gpus)
    return collector


def test_pods_and_jobs_share_a_device(tree: CgroupTree) -> None:
    gpus = FakeGpus(0.8, 0.0)
    gpus.running = [
        Process("GPU-0", 10, 0.5, 10 * GIB),
        Process("GPU-0", 20, 0.2, 4 * GIB),
        Process("GPU-0", 99, 0.1, GIB),
    ]
    collector = opened(tree, gpus)
    first = Seen(collector)
    assert np.isnan(first.sm()).all()
    tree.pod(0, cpu_s=0.25)
    second = Seen(collector)
    chat, job, shop = ("ml/chat", CHAT), ("slurm/7", "7.n1"), ("web/shop", SHOP)
    assert second.allocations == first.allocations
    assert second.allocations == {
        chat: Allocation(
            workload="ml/chat",
            replica=CHAT,
            devices=(0,),
            runtime="kubernetes",
            labels={"namespace": "ml", "pod": CHAT, "uid": UIDS[0]},
        ),
        job: Allocation(workload="slurm/7", replica="7.n1", devices=(0,), runtime="slurm", labels={"job": "7"}),
        shop: Allocation(
            workload="web/shop",
            replica=SHOP,
            runtime="kubernetes",
            labels={"namespace": "web", "pod": SHOP, "uid": UIDS[1]},
        ),
    }
    assert second.sm(0) == pytest.approx([0.7, 0.1, 0.2])
    assert second.sm(1) == [0, 0, 1]
    assert second.energy(0) == pytest.approx([210, 30, 60])
    assert second.energy(1) == [0, 0, 300]
    assert second.usage[chat]["nvidia.gpu.workload.sm.time"] == pytest.approx(0.5)
    assert second.usage[chat]["nvidia.gpu.workload.energy"] == pytest.approx(150)
    assert second.usage[chat]["nvidia.gpu.workload.memory.usage"] == 10 * GIB
    assert second.usage[chat]["nvidia.gpu.workload.process.count"] == 1
    assert second.usage[chat]["container.cpu.time"] == pytest.approx(0.25)
    assert second.usage[shop]["container.memory.usage"] == 1000
    assert np.isnan(second.usage[shop]["nvidia.gpu.workload.sm.time"])
    assert second.shares[0]["nvidia.gpu.share.memory{part=unattributed}"] == 6 * GIB
    assert second.shares[0]["nvidia.gpu.share.memory{part=free}"] == 60 * GIB


def test_idle_power_is_learnt_while_nothing_runs(tree: CgroupTree) -> None:
    gpus = FakeGpus(0.0)
    gpus.set("hw.energy", [70.0])
    collector = opened(tree, gpus)
    for _ in range(2):
        assert Seen(collector).shares
    gpus.set("hw.energy", [300.0])
    gpus.set("nvidia.gpu.busy.time", [0.5])
    gpus.running = [Process("GPU-0", 10, 0.5, GIB)]
    assert Seen(collector).energy() == pytest.approx([265, 0, 35])


def test_replicas_come_and_go(tree: CgroupTree) -> None:
    gpus = FakeGpus(0.5)
    collector = opened(tree, gpus)
    assert {a.devices for a in Seen(collector).allocations.values()} == {()}
    gpus.running = [Process("GPU-0", 10, 0.5, GIB)]
    assert Seen(collector).allocations["ml/chat", CHAT].devices == (0,)
    gpus.running = []
    assert Seen(collector).allocations["ml/chat", CHAT].devices == (0,)  # it is the pod's for as long as that lives
    remove(tree.pod(0))
    assert ("ml/chat", CHAT) not in Seen(collector).allocations


def test_while_the_devices_do_not_answer_who_holds_them_stays(tree: CgroupTree) -> None:
    gpus = FakeGpus(0.5)
    gpus.running = [Process("GPU-0", 10, 0.5, GIB)]
    collector = opened(tree, gpus)
    before = Seen(collector)
    gpus.answers = False
    after = Seen(collector)
    assert after.shares == []
    assert after.allocations == before.allocations
    assert np.isnan(after.usage["ml/chat", CHAT]["nvidia.gpu.workload.sm.time"])


def test_pods_alone_without_devices(tree: CgroupTree) -> None:
    seen = Seen(opened(tree))
    assert [key[0] for key in seen.allocations] == ["ml/chat", "web/shop", "slurm/7"]
    assert seen.shares == []
    assert Seen(opened(tree, groups=())).allocations == {}
    users_only = opened(tree, without_devices=False)
    assert Seen(users_only).allocations == {}
    users_only.attach(None, [Reported()])
    assert list(Seen(users_only).allocations) == [("assistant", CHAT)]


def test_names_by_rule_by_another_collector_and_by_uid(tree: CgroupTree) -> None:
    ruled = opened(tree, rules=(NamingRule(match={"namespace": "*"}, workload="all"),))
    assert {key[0] for key in Seen(ruled).allocations} == {"all", "slurm/7"}
    reported = opened(tree)
    reported.attach(None, [Reported()])
    assert ("assistant", CHAT) in Seen(reported).allocations
    nameless = opened(tree, pod_logs="/nowhere")
    assert (f"pod/{UIDS[0]}", UIDS[0]) in Seen(nameless).allocations


def test_two_pods_of_one_name_are_two_replicas(tree: CgroupTree) -> None:
    remove(tree.root / "var/log/pods")
    for pod in (0, 1):
        tree.pod(pod, "web_shop-0")
    names = list(Seen(opened(tree, groups=("kubepods*",))).allocations)
    assert names == [("web/shop", "shop-0"), ("web/shop", f"shop-0.{UIDS[1]}")]


def test_instances_of_a_divided_gpu(tree: CgroupTree) -> None:
    gpus = FakeGpus(NAN, NAN, NAN)
    ids = [
        Device(id=f"MIG-{i}", model="H100", memory_bytes=1, parent="GPU-0", mig_profile=p)
        for i, p in ((1, "3g.40gb"), (2, "1g.10gb"))
    ]
    gpus.devices = (Device(id="GPU-0", model="H100", memory_bytes=1, mig_enabled=True), *ids)
    gpus.set("hw.energy", [700.0, NAN, NAN])
    gpus.set("nvidia.gpu.graphics.activity", [NAN, 0.5, 1.0])
    gpus.running = [Process("MIG-1", 10, NAN, GIB), Process("MIG-2", 20, NAN, GIB)]
    collector = opened(tree, gpus)
    Seen(collector)
    seen = Seen(collector)
    assert seen.allocations["slurm/7", "7.n1"].devices == (2,)
    assert seen.sm(0) == pytest.approx([0.5 * 3 / 7 + 1 / 7, 0, 1 - 2.5 / 7])
    energy = [seen.usage[key]["nvidia.gpu.workload.energy"] for key in (("ml/chat", CHAT), ("slurm/7", "7.n1"))]
    assert sum(energy) == pytest.approx(seen.energy(0)[0])
    assert energy == pytest.approx([150, 100])


@pytest.mark.parametrize(
    ("model", "profile", "part"),
    [("H100", "3g.40gb", 3 / 7), ("H100", "1c.3g.40gb", 1 / 7), ("NVIDIA A30", "2g.12gb", 0.5), ("H100", None, 1 / 7)],
)
def test_parts_of_instances(model: str, profile: str | None, part: float) -> None:
    device = Device(id="MIG-1", model=model, memory_bytes=1, parent="GPU-0", mig_profile=profile)
    assert part_of(device) == pytest.approx(part)


def test_hosts_without_control_groups_have_allocations_by_device_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    tree = CgroupTree(tmp_path, unified=False)
    tree.process(10, f"/kubepods/pod{UIDS[0]}/{CONTAINER}")
    gpus = FakeGpus(0.5)
    gpus.running = [Process("GPU-0", 10, 0.5, GIB)]
    collector = opened(tree, gpus)
    Seen(collector)
    seen = Seen(collector)
    assert list(seen.allocations) == [(f"pod/{UIDS[0]}", UIDS[0])]
    row = seen.usage[f"pod/{UIDS[0]}", UIDS[0]]
    assert row["nvidia.gpu.workload.sm.time"] == 0.5
    assert np.isnan(row["container.cpu.time"])
    assert sum("control groups are not to be seen" in record.message for record in caplog.records) == 1


@pytest.mark.parametrize("shared", [True, False])
def test_hosts_of_version_1_report_what_pods_and_jobs_use(tmp_path: Path, shared: bool) -> None:
    tree = CgroupTree(tmp_path, unified=False)
    pod, job = f"/kubepods/burstable/pod{UIDS[0]}", "/slurm/uid_1000/job_42"
    for path in (pod, job):
        tree.group_v1(path, shared=shared, cpu_s=1.0, memory=1 << 30)
    for pid, path in ((10, f"{pod}/{CONTAINER}"), (11, f"{job}/step_0/task_0")):
        tree.process_v1(pid, path)
    gpus = FakeGpus(0.5)
    gpus.running = [Process("GPU-0", 10, 0.25, GIB), Process("GPU-0", 11, 0.25, GIB)]
    collector = opened(tree, gpus)
    Seen(collector)
    for path in (pod, job):
        tree.group_v1(path, shared=shared, cpu_s=3.5, memory=2 << 30)
    seen = Seen(collector)
    assert {replica for _, replica in seen.allocations} == {"42.n1", UIDS[0]}
    for key in seen.allocations:
        row = seen.usage[key]
        assert row["container.cpu.time"] == pytest.approx(2.5)
        assert row["container.memory.working_set"] == pytest.approx((2 << 30) - 1000)
        assert row["nvidia.gpu.workload.sm.time"] == 0.25
    tree.remove_v1(job)
    gpus.running = []
    assert list(Seen(collector).allocations) == [(f"pod/{UIDS[0]}", UIDS[0])]


CHURN = st.lists(
    st.tuples(
        st.sets(st.integers(0, 1)),  # pods that live
        st.dictionaries(st.integers(10, 13), st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 1))),
        st.lists(st.sampled_from([NAN, 0.0, 0.3, 1.0]), min_size=2, max_size=2),
        st.booleans(),
    ),
    min_size=1,
    max_size=6,
)


@settings(deadline=None, max_examples=30)
@given(CHURN)
def test_whoever_comes_and_goes_rows_agree_and_parts_add_up(
    tmp_path_factory: pytest.TempPathFactory,
    churn: list[tuple[set[int], dict[int, tuple[int, int, int]], list[float], bool]],
) -> None:
    tree = CgroupTree(tmp_path_factory.mktemp("churn"))
    gpus = FakeGpus(0.0, 0.0)
    collector = opened(tree, gpus)
    for tick, (pods, processes, busy, gpus.answers) in enumerate(churn):
        for pod in (0, 1):
            folder = tree.pod(pod, f"ml_chat-{pod}")
            if pod not in pods:
                remove(folder)
        for pid in range(10, 14):
            tree.process(pid, "/")
            tree.end(pid)
        for pid, (where, start, _) in processes.items():
            tree.process(pid, (tree.pod_path(0), tree.pod_path(1), JOB)[where], start)
        gpus.running = [
            Process(f"GPU-{gpu}", pid, NAN if pid == 10 else 0.2, GIB) for pid, (_, _, gpu) in processes.items()
        ]
        gpus.set("nvidia.gpu.busy.time", busy)
        seen = Seen(collector)
        assert len(seen.shares) == (2 if gpus.answers else 0)
        assert all(set(a.devices) <= {0, 1} for a in seen.allocations.values())
        for row in range(len(seen.shares)):
            sm, energy = np.array(seen.sm(row)), np.array(seen.energy(row))
            assert np.isnan(sm).all() or sm.sum() == pytest.approx(1, rel=1e-5)
            assert np.isnan(energy).all() or energy.sum() == pytest.approx(300, rel=1e-5)
            assert tick or np.isnan(sm).all()


def test_this_machine() -> None:
    collector = AttributionCollector(AttributionParameters(), "n1")
    seen = Seen(collector)
    assert seen.shares == []
