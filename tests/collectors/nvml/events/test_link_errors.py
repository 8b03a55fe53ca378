"""Errors of links: each NVLink by its number, whatever way the driver has, and PCIe where only the kernel tells."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.collectors.nvml.nvml_tools import S
from tests.nvml_stub.stub import GPU_IS_LOST, NvmlStub

from flyball_collectors.agent.diagnosis.doctor import compare_gpus
from flyball_collectors.base import Reading
from flyball_collectors.nvml import NvmlCollector, open_nvml
from flyball_collectors.nvml.readings.link_errors import LinkWatch
from flyball_collectors.parameters import GpuParameters
from flyball_contracts.config import AgentConfig, Config
from flyball_contracts.metrics import GPU, GPU_DETAIL
from flyball_contracts.records import NodeEvent

AER = {
    "aer_dev_correctable": "RxErr 0\nBadTLP 3\nBadDLLP 2\nRollover 0\nTimeout 0\nTOTAL_ERR_COR 5\n",
    "aer_dev_nonfatal": "Undefined 0\nTOTAL_ERR_NONFATAL 1\n",
    "aer_dev_fatal": "Undefined 0\nnot a line\n",
}


class Node:
    """A collector that looks at the details at each read, one a second."""

    def __init__(self, stub: NvmlStub, root: Path) -> None:
        collector = open_nvml("n1", root, GpuParameters(detail_period_s=1.0))
        assert isinstance(collector, NvmlCollector)
        self.collector, self.stub, self.now_s = collector, stub, 0
        self.latest: list[Reading] = []

    def run(self, seconds: int = 1) -> list[NodeEvent]:
        events: list[NodeEvent] = []
        for _ in range(seconds):
            self.now_s += 1
            self.latest = self.collector.read(self.now_s * S, S)
            events += self.collector.events()
        return events

    def value(self, key: str, row: int = 0) -> float:
        layout = GPU if key in GPU.columns else GPU_DETAIL
        (values,) = (one.values for one in self.latest if one.schema == layout.schema)
        return float(values[row, layout.column(key)])


@pytest.fixture
def node(nvml_stub: NvmlStub, tmp_path: Path) -> Iterator[Node]:
    nvml_stub.set_gpus(2)
    nvml_stub.set_switched(4)
    made = Node(nvml_stub, tmp_path)
    yield made
    made.collector.close()


def grow(stub: NvmlStub, way: str, link: int, replays: int, crc: int) -> None:
    if way == "call":
        stub.set_link_errors(link, replays, 0, crc - 1, 1)  # CRC of flow control and of data; ECC is not reported
        return
    stub.set_field(161, replays, scope=link)
    stub.set_field(163, crc, scope=link)


@pytest.mark.parametrize("way", ["field", "call"])
def test_a_link_whose_errors_grow_is_reported_by_its_number(node: Node, way: str) -> None:
    for link in range(4):
        grow(node.stub, way, link, 100, 1)  # since the driver was loaded: nothing of now
    assert node.run(3) == []
    grow(node.stub, way, 2, 107, 3)
    (event,) = node.run()
    assert (event.kind, event.device, event.link, event.count) == ("nvlink_error", _id(node, 0), 2, 9)
    assert event.message == "NVLink 2: 2 CRC errors, 7 replays in 3 s"
    assert (event.severity, event.remedy) == ("warning", "notify")
    assert node.value("nvidia.gpu.nvlink.errors{type=replay}") == 7
    assert node.value("nvidia.gpu.nvlink.errors") == 9
    node.run()
    assert node.value("nvidia.gpu.nvlink.errors") == 0


def test_a_link_that_goes_on_has_few_events_and_their_counts_add_up(node: Node) -> None:
    node.stub.set_field(161, 0, scope=1)
    node.run()
    events: list[NodeEvent] = []
    for second in range(1, 601):
        node.stub.set_field(161, 5 * second, scope=1)
        events += node.run()
    assert [event.link for event in events] == [1] * 4  # at once, after 1, 3 and 7 minutes
    assert sum(event.count or 0 for event in events) == 5 * 421


def test_counters_that_begin_anew_are_no_errors_and_a_lost_gpu_reports_nothing(node: Node) -> None:
    node.stub.set_field(163, 50, scope=0)
    node.run()
    node.stub.set_field(163, 4, scope=0)
    assert node.run() == []
    node.stub.gpu(0).lost = GPU_IS_LOST
    assert [event.kind for event in node.run(2)] == ["device_lost"]


def test_a_count_that_one_read_lacks_has_not_grown() -> None:
    watch = LinkWatch()
    reads = ({"crc": 5000.0, "replay": 7.0}, {"replay": 7.0}, {"crc": 5000.0, "replay": 7.0, "recovery": 3.0})
    assert [e for i, read in enumerate(reads) for e in watch.note("n", "gpu", {0: read}, i * 100 * S)] == []
    (event,) = watch.note("n", "gpu", {0: {"crc": 5002.0, "replay": 7.0, "recovery": 3.0}}, 400 * S)
    assert event.count == 2


def test_a_clock_that_is_set_back_silences_no_link() -> None:
    watch, hour = LinkWatch(), 3600 * S
    assert watch.note("n", "gpu", {0: {"crc": 1.0}, 1: {"crc": 1.0}}, 8 * hour) == []
    assert len(watch.note("n", "gpu", {0: {"crc": 2.0}, 1: {"crc": 1.0}}, 8 * hour + S)) == 1
    events = watch.note("n", "gpu", {0: {"crc": 4.0}, 1: {"crc": 2.0}}, 2 * S)  # one in its minute, and one that is new
    assert [(event.link, event.count, event.message) for event in events] == [
        (0, 2, "NVLink 0: 2 CRC errors"),
        (1, 1, "NVLink 1: 1 CRC errors"),
    ]
    assert watch.note("n", "gpu", {0: {"crc": 5.0}, 1: {"crc": 3.0}}, 3 * S) == []
    (event,) = watch.note("n", "gpu", {0: {"crc": 5.0}, 1: {"crc": 3.0}}, 62 * S)
    assert (event.link, event.message) == (1, "NVLink 1: 1 CRC errors in 60 s")


def test_pcie_errors_of_the_kernel_stand_in_for_those_of_the_driver(node: Node, tmp_path: Path) -> None:
    folder = tmp_path / "sys/bus/pci/devices/0000:10:00.0"
    folder.mkdir(parents=True)
    for name, text in AER.items():
        (folder / name).write_text(text)
    node.stub.set_field(178, 40)  # bad DLLP: the driver's own count stays
    node.run()
    (folder / "aer_dev_correctable").write_text(AER["aer_dev_correctable"].replace("3", "8").replace("COR 5", "COR 10"))
    node.stub.set_field(178, 41)
    node.run()
    reported = {
        kind: node.value(f"nvidia.gpu.pcie.errors{{type={kind}}}") for kind in ("correctable", "bad_tlp", "bad_dllp")
    }
    assert reported == {"correctable": 5, "bad_tlp": 5, "bad_dllp": 1}
    assert node.value("nvidia.gpu.pcie.errors{type=non_fatal}") == 0
    assert np.isnan(node.value("nvidia.gpu.pcie.errors{type=fatal}"))
    assert np.isnan(node.value("nvidia.gpu.pcie.errors{type=correctable}", row=1))  # no such folder


@pytest.mark.parametrize("way", ["field", "call"])
def test_the_binding_is_queried_for_each_link(nvml_stub: NvmlStub, way: str) -> None:
    nvml_stub.set_switched(2)
    for link in range(2):
        grow(nvml_stub, way, link, 10 + link, 20 + link)
    rows, _ = compare_gpus(Config(agent=AgentConfig(node="n1")))
    reported = {one.key: (one.ours, one.theirs, one.verdict) for one in rows if "nvlink.errors" in one.key}
    assert reported["nvidia.gpu.nvlink.errors{link=1,type=replay}"] == (11, 11, "same")
    assert reported["nvidia.gpu.nvlink.errors{link=0,type=crc}"] == (20, 20, "same")
    assert reported["nvidia.gpu.nvlink.errors{type=crc}"] == (41, 41, "same")
    assert {verdict for _, _, verdict in reported.values()} <= {"same", "ours alone"}


def _id(node: Node, index: int) -> str:
    return node.collector.parts().devices[index].id
