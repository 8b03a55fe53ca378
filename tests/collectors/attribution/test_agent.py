"""The whole agent: two pods and a job on three GPUs of the stand-in, from driver and kernel to records."""

import threading
import time
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.collectors.agent.agent_tools import START_NS, TOPICS, FakeTime, S, StartBroker, receive
from tests.collectors.attribution.cgroup_tree import CONTAINER, CgroupTree, remove
from tests.nvml_stub.stub import NvmlStub

from flyball_collectors.agent import read_once, run_agent
from flyball_collectors.agent.diagnosis.doctor import Finding, explain
from flyball_collectors.parameters import AgentParameters, AttributionParameters
from flyball_contracts.config import Config, KafkaConfig
from flyball_contracts.metrics import GPU_SHARE, USAGE, Layout
from flyball_contracts.records import Inventory

GIB = 1 << 30
ENERGY_MJ = 83  # field of the energy counter
CHAT, SHOP, JOB = ("ml/chat", "chat-7c9bdf6d5b-x2x7k"), ("web/shop", "shop-0"), ("slurm/7", "7.n1")
FOLDER = "/system.slice/slurmstepd.scope/job_7"


class Node:
    """The chat pod has GPU 0 and shares GPU 1 with the job; the shop has none; GPU 2 is idle."""

    def __init__(self, tree: CgroupTree, stub: NvmlStub) -> None:
        self.tree = tree
        self.stub = stub
        self.ticks = 0
        self.start_us = time.time_ns() // 1000
        stub.set_gpus(3)
        tree.pod(0, f"ml_{CHAT[1]}")
        tree.pod(1, f"web_{SHOP[1]}")
        tree.group(FOLDER)
        for pid in (11, 12):
            tree.process(pid, f"{tree.pod_path(0)}/cri-containerd-{CONTAINER}.scope")
        tree.process(13, f"{FOLDER}/step_0/user/task_0")
        self.go_on()

    def go_on(self) -> None:
        """One second: GPU 0 is busy for 90 % of it, GPU 1 for 60 %, and what each draws is 400, 300 and 70 W."""
        self.ticks += 1
        now_us = self.start_us + self.ticks * 1_000_000
        for gpu, (busy, watts) in enumerate(((90, 400), (60, 300), (0, 70))):
            self.stub.set_samples([(now_us - 500_000, busy), (now_us, busy)], gpu=gpu)
            self.stub.set_field(ENERGY_MJ, self.ticks * watts * 1000, gpu=gpu)
        self.stub.set_processes([(11, 10 * GIB, 85, now_us)], gpu=0)
        self.stub.set_processes([(12, 5 * GIB, 45, now_us), (13, 5 * GIB, 30, now_us)], gpu=1)
        for folder in (self.tree.pod_path(0), self.tree.pod_path(1), FOLDER):
            self.tree.group(folder, cpu_s=2 * self.ticks)

    def end_job(self) -> None:
        """The job is over, and nothing runs on GPU 1."""
        self.stub.set_processes([], gpu=1)
        if (self.tree.root / "proc/13").exists():
            self.tree.end(13)
        remove(self.tree.group(FOLDER))


@pytest.fixture
def node(nvml_stub: NvmlStub, tmp_path: Path) -> Node:
    return Node(CgroupTree(tmp_path / "root"), nvml_stub)


def config(node: Node, bootstrap: str = "127.0.0.1:1") -> Config:
    root = node.tree.root
    agent = AgentParameters(
        node="n1",
        root=str(root),
        state_dir=str(root / "state"),
        inventory_period_s=1000,
        attribution=AttributionParameters(usage_period_s=1, without_devices=True),
        disabled=("kmsg",),
    )
    return Config(kafka=KafkaConfig(bootstrap), agent=agent)


def column(layout: Layout, values: NDArray[np.float32], key: str) -> list[float]:
    return [float(value) for value in values[:, layout.column(key)]]


def check(inventory: Inventory, usage: NDArray[np.float32], shares: NDArray[np.float32]) -> None:
    """The parts of each device are the device, and what the replicas have is what is attributed."""
    assert len(usage) == len(inventory.allocations)
    assert len(shares) == len(inventory.devices) == 3
    for kind, whole in (("sm.time", [1, 1, 1]), ("energy", [400, 300, 70])):
        parts = [
            column(GPU_SHARE, shares, f"nvidia.gpu.share.{kind}{{part={part}}}")
            for part in ("attributed", "unattributed", "idle")
        ]
        assert np.sum(parts, axis=0) == pytest.approx(whole, rel=1e-5)
        used = np.nansum(column(USAGE, usage, f"nvidia.gpu.workload.{kind}"))
        assert used == pytest.approx(sum(parts[0]), rel=1e-5)


def test_what_it_reads_once_adds_up(node: Node) -> None:
    snapshot = read_once(config(node), wait=lambda seconds: node.go_on())
    values = {reading.schema: reading.values for reading in snapshot.readings}
    usage, shares = values[USAGE.schema], values[GPU_SHARE.schema]
    check(snapshot.inventory, usage, shares)
    assert [(a.workload, a.replica) for a in snapshot.inventory.allocations] == [CHAT, JOB, SHOP]
    assert [a.devices for a in snapshot.inventory.allocations] == [(0, 1), (1,), ()]
    attributed = column(GPU_SHARE, shares, "nvidia.gpu.share.sm.time{part=attributed}")
    assert attributed == pytest.approx([0.85, 0.6, 0])
    assert column(GPU_SHARE, shares, "nvidia.gpu.share.sm.time{part=unattributed}") == pytest.approx([0.05, 0, 0])
    sm_time = column(USAGE, usage, "nvidia.gpu.workload.sm.time")
    assert sm_time == pytest.approx([0.85 + 0.36, 0.24, float("nan")], nan_ok=True)
    assert column(USAGE, usage, "nvidia.gpu.workload.memory.usage")[:2] == [15 * GIB, 5 * GIB]
    assert column(USAGE, usage, "container.cpu.time") == pytest.approx([2, 2, 2])
    assert column(USAGE, usage, "container.memory.usage") == [1000, 1000, 1000]


def test_a_divided_gpu_is_its_instances(node: Node) -> None:
    """The stand-in gives GPU instance i what its GPU has over 1 + i: 0.4 of three slices, 0.2 of two."""
    node.stub.set_gpus(1)
    node.stub.set_instances([(1, 0, 3, 3), (3, 0, 2, 2)])
    node.stub.gpu().gpm_value[1] = 80
    for instance, pid in enumerate((11, 13)):
        node.stub.set_processes([(pid, GIB, 0, 0)], instance=instance)
    node.stub.set_field(ENERGY_MJ, 0)

    def wait(seconds: float) -> None:
        node.stub.set_field(ENERGY_MJ, 500_000)
        time.sleep(0.15)  # GPM gives no answer about less than a tenth of a second

    snapshot = read_once(config(node), wait=wait)
    values = {reading.schema: reading.values for reading in snapshot.readings}
    usage, shares = values[USAGE.schema], values[GPU_SHARE.schema]
    assert [a.devices for a in snapshot.inventory.allocations] == [(1,), (2,), ()]
    sm_time = column(USAGE, usage, "nvidia.gpu.workload.sm.time")[:2]
    assert sm_time == pytest.approx([0.4 * 3 / 7, 0.2 * 2 / 7])
    attributed = column(GPU_SHARE, shares, "nvidia.gpu.share.sm.time{part=attributed}")
    assert attributed == pytest.approx([sum(sm_time), 0.4, 0.2])
    idle = column(GPU_SHARE, shares, "nvidia.gpu.share.energy{part=idle}")[0]
    energy = column(USAGE, usage, "nvidia.gpu.workload.energy")[:2]
    assert sum(energy) + idle == pytest.approx(500)
    assert energy[0] / energy[1] == pytest.approx(3.0)


def test_frames_and_inventory_agree_while_replicas_go(embedded_broker: StartBroker, node: Node) -> None:
    broker = embedded_broker(TOPICS)
    time_ = FakeTime()

    def wait(seconds: float) -> bool:
        stopped = time_.wait(seconds)
        while node.ticks <= (time_.now_ns - START_NS) // S:
            node.go_on()
            if node.ticks > 5:
                node.end_job()
        return stopped

    report = run_agent(
        config(node, broker.bootstrap), stop=threading.Event(), max_ticks=7, clock=time_.clock, wait=wait
    )
    received = receive(broker.bootstrap, report.delivered)
    by_epoch = {inventory.epoch: inventory for inventory in received.inventories if inventory.agent == "running"}
    assert sorted(by_epoch) == list(range(min(by_epoch), min(by_epoch) + 2))
    first, last = (by_epoch[epoch] for epoch in sorted(by_epoch))
    assert [(a.workload, a.replica) for a in first.allocations] == [CHAT, JOB, SHOP]
    assert [(a.workload, a.replica) for a in last.allocations] == [CHAT, SHOP]
    assert last.allocations[0].devices == (0, 1)  # no process on GPU 1 now, and still the pod's
    ticks: dict[int, dict[int, NDArray[np.float32]]] = {}
    for frame in received.frames:
        if frame.schema in (USAGE.schema, GPU_SHARE.schema):
            rows = {USAGE.schema: len(by_epoch[frame.inventory_epoch].allocations), GPU_SHARE.schema: 3}
            assert frame.rows == rows[frame.schema]
            ticks.setdefault(frame.time_ns, {})[frame.schema] = frame.values
    assert len(ticks) == 7
    for values in list(ticks.values())[1:4]:
        check(first, values[USAGE.schema], values[GPU_SHARE.schema])


def findings(config: Config) -> dict[str, Finding]:
    return {finding.name: finding for finding in explain(config, wait=lambda seconds: None)}


def test_the_doctor_reports_who_can_be_reported(node: Node, tmp_path: Path) -> None:
    assert findings(config(node))["host.cgroup"].ok
    assert not findings(config(node))["attribution"].ok  # nothing is known of process 1
    node.tree.process(1, "/init.scope")
    found = findings(config(node))["attribution"]
    assert found.ok
    assert "2 of kubernetes, 1 of slurm" in found.detail
    remove(node.tree.root / "var/log/pods")
    assert "pods have no names" in findings(config(node))["attribution"].detail
    (tmp_path / "old/proc").mkdir(parents=True)
    old = findings(Config(agent=AgentParameters(root=str(tmp_path / "old"), disabled=("nvml", "kmsg"))))
    assert not old["host.cgroup"].ok
    assert "no control groups are to be seen" in old["host.cgroup"].detail
    (tmp_path / "old/sys/fs/cgroup/memory").mkdir(parents=True)
    agent = AgentParameters(root=str(tmp_path / "old"), disabled=("nvml", "kmsg"))
    legacy = findings(Config(agent=agent))["host.cgroup"]
    assert (legacy.ok, legacy.detail.endswith("of version 1, which report no pressure")) == (True, True)
